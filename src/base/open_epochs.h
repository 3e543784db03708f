// Which epochs of membership this process is in. A communicator that is split or shrunk from
// another has the next epoch, so none will ever be made here that is older than the oldest open
// one: what comes for an older epoch is from the past, and is refused. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>

namespace unisono {

class OpenEpochs {
 public:
  void open(std::uint32_t epoch) {
    const std::lock_guard lock(mutex_);
    open_.insert(epoch);
    update();
  }
  void close(std::uint32_t epoch) {
    const std::lock_guard lock(mutex_);
    if (const auto one = open_.find(epoch); one != open_.end()) open_.erase(one);
    update();
  }
  // Relaxed: a fact that only grows; who still sees the one before accepts what he did before.
  std::uint32_t oldest() const { return oldest_.load(std::memory_order_relaxed); }
  bool is_over(std::uint32_t epoch) const { return epoch < oldest(); }

 private:
  // The last communicator of a process leaves no other behind that could be split.
  void update() {
    if (!open_.empty())
      oldest_.store(std::max(oldest(), *open_.begin()), std::memory_order_relaxed);
  }

  std::mutex mutex_;
  std::multiset<std::uint32_t> open_;
  std::atomic<std::uint32_t> oldest_{0};
};

}  // namespace unisono
