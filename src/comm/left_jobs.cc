#include "comm/left_jobs.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <vector>

namespace unisono::comm {
namespace {

class LeftJobs {
 public:
  void add(std::unique_ptr<Job> job) {
    const std::lock_guard lock(mutex_);
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
};

// Never destroyed: a communicator of static storage may go after any object here.
LeftJobs& left_jobs() {
  static auto* const jobs = new LeftJobs;
  return *jobs;
}

}  // namespace

void leave(std::unique_ptr<Job> job) {
  left_jobs().add(std::move(job));
  left_jobs().sweep();
}

}  // namespace unisono::comm
