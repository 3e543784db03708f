#include "comm/job/orphaned_jobs.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "sys/fork.h"

namespace unisono::comm {
namespace {

class OrphanedJobs {
 public:
  void add(std::unique_ptr<Job> job) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(forks_, sys::fork_count()) != sys::fork_count()) {
      std::move(jobs_.begin(), jobs_.end(), std::back_inserter(of_parents_));
      jobs_.clear();
    }
    jobs_.push_back(std::move(job));
  }
  // A job's destructor may wait for ranks of other processes, so that it runs without the lock.
  void sweep() {
    std::vector<std::unique_ptr<Job>> over;
    const std::lock_guard lock(mutex_);
    const auto unused = std::partition(
        jobs_.begin(), jobs_.end(), [](const auto& job) { return job->is_used_in_this_process(); });
    std::move(unused, jobs_.end(), std::back_inserter(over));
    jobs_.erase(unused, jobs_.end());
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Job>> jobs_;
  // What a forked process has copies of, and must not touch.
  std::vector<std::unique_ptr<Job>> of_parents_;
  std::uint32_t forks_ = sys::fork_count();
};

// Never destroyed: a communicator of static storage may go after any object here.
OrphanedJobs& orphaned_jobs() {
  static auto* const jobs = new OrphanedJobs;
  return *jobs;
}

}  // namespace

void leave(std::unique_ptr<Job> job) {
  orphaned_jobs().add(std::move(job));
  orphaned_jobs().sweep();
}

}  // namespace unisono::comm
