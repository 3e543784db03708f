// The threads that drive: those that wait for a call, and the progress thread, for calls that
// nobody waits for.

#include "base/error.h"
#include "base/log.h"
#include "base/recheck_interval.h"
#include "comm/run/backoff.h"
#include "comm/run/scheduler.h"

namespace unisono::comm {
namespace {

// Nothing but this looks at calls that run on a device.
constexpr std::int64_t device_interval_ns = 50'000'000;
// With a progress thread that others hold up.
constexpr std::chrono::milliseconds patience_at_exit(2000);

}  // namespace

Scheduler::~Scheduler() {
  at_exit_.reset();
  {
    const std::lock_guard lock(thread_mutex_);
    stopping_ = true;
  }
  thread_wake_->notify_all();
  if (thread_) thread_->join();
}

void Scheduler::stop_progress_thread(std::chrono::milliseconds patience) {
  std::unique_lock lock(thread_mutex_);
  stopping_ = true;
  thread_wake_->notify_all();
  const std::int64_t until_ns = now_ns() + std::chrono::nanoseconds(patience).count();
  while (thread_ && !has_stopped_ && now_ns() < until_ns)
    thread_wake_->wait_for(lock, until_ns - now_ns());
}

void Scheduler::watch(StreamCalls& on_streams) {
  log_.watch_launches();
  on_streams_.store(&on_streams, std::memory_order_release);
  if (failed_.load(std::memory_order_acquire)) on_streams.abort({});
  // A program may end without having destroyed its communicators, and the driver, which was
  // initialised before this, ends after it.
  at_exit_.emplace([this] { stop_progress_thread(patience_at_exit); });
  start_progress_thread();
}

void Scheduler::stop_waiting() {
  waiters_.fetch_sub(1);
  if (!idle() && waiters_.load() == 0) start_progress_thread();
}

void Scheduler::start_progress_thread() {
  Status started;
  {
    const std::lock_guard lock(thread_mutex_);
    if (!thread_ && !stopping_) {
      auto made =
          world_.start_thread("drives asynchronous calls", [this] { run_progress_thread(); });
      if (made.ok())
        thread_ = std::move(*made);
      else
        started = made.take_error();
    }
    thread_wake_->notify_all();
  }
  if (started.ok()) return;
  Error error = started.error();
  error.message = str("rank ", options_.rank, ": ", error.message);
  fail(error);
}

void Scheduler::help() {
  if (!try_lock_progress()) return;
  connections_.set_looks(true);
  round();
  unlock_progress();
}

void Scheduler::run_progress_thread() {
  set_log_rank(options_.rank);
  Backoff backoff(world_, spin_, options_.longest_sleep_ns);
  std::int64_t looked_ns = now_ns();
  std::unique_lock lock(thread_mutex_);
  while (!stopping_) {
    const bool has_streams = on_streams_.load(std::memory_order_acquire) != nullptr;
    const bool needed = !idle() && waiters_.load() == 0;
    if (!needed) {
      thread_wake_->wait_for(lock, has_streams
                                       ? device_interval_ns
                                       : std::chrono::nanoseconds(recheck_interval).count());
      backoff.reset();
    }
    lock.unlock();
    if (needed) advance(backoff);
    if (has_streams && now_ns() - looked_ns >= device_interval_ns) {
      look_at_device();
      looked_ns = now_ns();
    }
    lock.lock();
  }
  has_stopped_ = true;
  thread_wake_->notify_all();
}

Scheduler::Pause::Pause(Scheduler& scheduler) : scheduler_(scheduler) {
  Backoff backoff(scheduler_.world_, 100);
  while (!scheduler_.try_lock_progress()) backoff.step();
}

}  // namespace unisono::comm
