// A communicator among those that the thread of dump.cc serves.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "comm/core.h"
#include "comm/observe/live_hosts.h"
#include "sys/fork.h"
#include "sys/local_server.h"

namespace unisono::comm {

// A communicator whose record others may want. No mutex is held while they read it: reading may
// find a failure, which has the others of the process written down.
class Watched {
 public:
  explicit Watched(Communicator::Core& of) : core(&of), job(of.job.get()) {}

  // False: the communicator is about to go.
  [[nodiscard]] bool begin_use() {
    const std::lock_guard lock(mutex_);
    if (is_going_) return false;
    ++users_;
    return true;
  }
  void end_use() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) is_unused_.notify_all();
  }
  // Returns when nobody uses it, and nobody will. In a forked child, whose parent may have used it
  // when it forked, nobody does.
  void let_go() {
    if (sys::fork_count() != forks_) return;
    std::unique_lock lock(mutex_);
    is_going_ = true;
    is_unused_.wait(lock, [this] { return users_ == 0; });
  }

  Communicator::Core* const core;
  const Job* const job;
  // The job's. Null: no socket could be had; all ranks are on this host.
  std::shared_ptr<sys::LocalSocket> socket;
  std::shared_ptr<HostSurveys> surveys;

 private:
  std::mutex mutex_;
  std::condition_variable is_unused_;
  const std::uint32_t forks_ = sys::fork_count();
  int users_ = 0;
  bool is_going_ = false;
};

}  // namespace unisono::comm
