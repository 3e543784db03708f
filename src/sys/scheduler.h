// Who waits for what: wait queues, deadlines and the order in which tasks go on. Both worlds are
// built on it; it knows no clock and no input, its owner tells it the time and notifies queues.
#pragma once

#include <coroutine>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

namespace unisono::sys {

inline constexpr std::int64_t no_deadline_ns = std::numeric_limits<std::int64_t>::max();

namespace detail {

// A member of a ring; alone when it points at itself.
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { unlink(); }

  bool alone() const { return next_ == this; }
  Link* next() const { return next_; }
  void unlink() {
    previous_->next_ = next_;
    next_->previous_ = previous_;
    previous_ = next_ = this;
  }
  void insert_before(Link& place) {
    unlink();
    previous_ = place.previous_;
    next_ = &place;
    previous_->next_ = this;
    place.previous_ = this;
  }

 private:
  Link* previous_ = this;
  Link* next_ = this;
};

}  // namespace detail

class Scheduler;

// A condition that tasks wait to change. Whoever wakes looks again: a notification says only that
// something may have changed. Tasks that wait on a queue that is destroyed wait for their deadline.
class WaitQueue {
 public:
  void notify_all();

 private:
  friend class Wait;
  detail::Link waiters_;
};

// co_await on a named Wait: true when the queue was notified, false when the deadline passed. It
// always suspends, also when the deadline is in the past.
class Wait : private detail::Link {
 public:
  Wait(Scheduler& scheduler, WaitQueue& queue, std::int64_t deadline_ns)
      : scheduler_(scheduler), queue_(&queue), deadline_ns_(deadline_ns) {}
  // Sleeps.
  Wait(Scheduler& scheduler, std::int64_t deadline_ns)
      : scheduler_(scheduler), deadline_ns_(deadline_ns) {}
  ~Wait();

  bool await_ready() { return false; }
  void await_suspend(std::coroutine_handle<> awaiter);
  bool await_resume() { return notified_; }

 private:
  friend class Scheduler;
  friend class WaitQueue;
  void stop_timer();

  Scheduler& scheduler_;
  WaitQueue* queue_ = nullptr;
  std::int64_t deadline_ns_;
  std::uint64_t timer_ = 0;  // its number among the scheduler's timers; 0: none runs
  bool notified_ = false;
  std::coroutine_handle<> awaiter_;
};

class Scheduler {
 public:
  // Resumes tasks in the order in which they became ready, until none is.
  void run_ready();
  bool has_ready() const { return !ready_.alone(); }
  // Makes ready what waits for a deadline at or before `now_ns`.
  void expire(std::int64_t now_ns);
  // The earliest deadline waited for; no_deadline_ns if none.
  std::int64_t next_deadline_ns() const;

 private:
  friend class Wait;
  friend class WaitQueue;

  detail::Link ready_;
  // By deadline, then by the order of waiting: the same in every run of a simulation.
  std::map<std::pair<std::int64_t, std::uint64_t>, Wait*> timers_;
  std::uint64_t last_timer_ = 0;
};

}  // namespace unisono::sys
