#include "sys/scheduler.h"

#include "sys/task.h"

namespace unisono::sys {

void WaitQueue::notify_all() {
  while (!waiters_.alone()) {
    Wait& wait = *static_cast<Wait*>(waiters_.next());
    wait.notified_ = true;
    wait.stop_timer();
    wait.insert_before(wait.scheduler_.ready_);
  }
}

Wait::~Wait() { stop_timer(); }

void Wait::stop_timer() {
  if (timer_ != 0) scheduler_.timers_.erase({deadline_ns_, timer_});
  timer_ = 0;
}

void Wait::await_suspend(std::coroutine_handle<> awaiter) {
  awaiter_ = awaiter;
  notified_ = false;
  if (queue_ != nullptr) insert_before(queue_->waiters_);
  if (deadline_ns_ == no_deadline_ns) return;
  timer_ = ++scheduler_.last_timer_;
  scheduler_.timers_.emplace(std::pair(deadline_ns_, timer_), this);
}

void Scheduler::run_ready() {
  while (has_ready()) {
    Wait& wait = *static_cast<Wait*>(ready_.next());
    wait.unlink();
    resume_chain(wait.awaiter_);
  }
}

void Scheduler::expire(std::int64_t now_ns) {
  while (!timers_.empty() && timers_.begin()->first.first <= now_ns) {
    Wait& wait = *timers_.begin()->second;
    wait.stop_timer();
    wait.insert_before(ready_);
  }
}

std::int64_t Scheduler::next_deadline_ns() const {
  return timers_.empty() ? no_deadline_ns : timers_.begin()->first.first;
}

}  // namespace unisono::sys
