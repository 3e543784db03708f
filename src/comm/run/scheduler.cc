#include "comm/run/scheduler.h"

#include <sched.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "comm/run/interrupt.h"
#include "comm/run/out_of_memory.h"

namespace unisono::comm {
namespace {

// Looking at the clock costs some 25 ns; every 64th idle poll is often enough.
constexpr std::int64_t rounds_between_looks = 64;
// How long a call may spin with the progress lock, however many spins are set, before it looks for
// failures, deadlines and the death of peers as any other does.
constexpr std::int64_t longest_turn_ns = 10'000'000;
// Oversubscribed ranks that only wait for each other yield for as long as a turn may last before
// one sleeps. Where another program wants the core, too, a rank that wakes up waits until that
// one's time slice is over, and its peers fall asleep meanwhile: 4 ranks next to such a program on
// 2 cores took 450 to 2600 us for 8 bytes with 200 yields, and take 20. Those with asynchronous
// calls have work to do on the core: they wait as Backoff says.
constexpr int inline_yields = 20'000;
// Polls, some 10 us, after which such a rank sleeps as Backoff says if a rank that it waits for has
// not entered the call: that rank computes, and a rank that yields on the same core gets the core
// back late. HSDP of 4 ranks on 2 cores trained at 1.02 times Gloo's speed, and does
// at 1.3.
constexpr int polls_of_absent = 256;
// A yield to another rank takes 1.7 us here. While all that are awaited run on other cores, their
// messages come sooner than that; for so many looks, some 5 us, in case one was interrupted.
constexpr int looks_before_yield = 128;
// Copied in less time than the clock is exact to.
constexpr std::uint64_t few_bytes = 4096;
// Waking the progress thread costs the caller and the thread some microseconds each: an
// asynchronous call first runs as long on the calling thread, and small ones are complete then.
constexpr std::int64_t handover_ns = 5'000;
// The host does not see a call on a stream start.
void set_started(Task& task) {
  task.entry.state =
      task.arguments.is_on_stream() ? trace::State::scheduled : trace::State::started;
}

}  // namespace

Scheduler::Scheduler(Options options, sys::World& world, Connections& connections,
                     StatusPage& status_page, ControlGroup& group)
    : options_(std::move(options)),
      world_(world),
      connections_(connections),
      status_page_(status_page),
      group_(group),
      collectives_record_(options_.record_slots),
      messages_record_(options_.record_slots),
      launches_(options_.record_slots),
      clock_(world),
      thread_wake_(world.make_condition()) {}

bool Scheduler::try_in_turn(PreparedCall& call, Status& status) {
  trace::Entry& entry = call.entry;
  const bool is_collective = entry.collective != Collective::point_to_point;
  if (is_collective) {
    // In the order in which they start, whichever thread has made them.
    const auto number = static_cast<std::uint32_t>(status_page_.joined());
    if (call.arguments.call.number != number) call.arguments.call.number = number;
  }
  // In a call of few bytes the clock is read when it first waits for a peer, where reading costs
  // nothing.
  entry.started_ns = entry.bytes <= few_bytes ? 0 : clock_.now_ns();
  try {
    status = call.execution->start(call.arguments);
    if (!status.ok()) [[unlikely]]
      return false;
    auto complete = call.execution->poll();
    // Not before what the peers wait for.
    if (is_collective) status_page_.shows(call.arguments.call);
    if (!complete.ok()) [[unlikely]] {
      status = complete.take_error();
      return false;
    }
    if (!*complete && !spin_inline(call, status)) return false;
  } catch (const std::bad_alloc&) {
    status = out_of_memory(options_.rank);
    return false;
  }
  entry.ended_ns = clock_.now_ns();
  if (entry.started_ns == 0) entry.started_ns = entry.ended_ns;
  entry.scheduled_ns = entry.started_ns;
  if (call.arguments.is_on_stream()) {
    launched(entry, is_collective ? entry.sequence : call.number, call.arguments.timeout_ns(),
             call.kind);
  } else {
    entry.state = trace::State::ended;
    std::uint32_t kind = call.kind;
    if (entry.bytes >= engine::least_measured_bytes ||
        connections_.connecting_ns() != connecting_seen_ns_) {
      count_times(entry, *call.execution, connecting_seen_ns_);
      // A call that connected differs from others of its kind in more than its times.
      if (entry.connecting_ns != 0) kind = 0;
    }
    (is_collective ? collectives_record_ : messages_record_)
        .write(is_collective ? entry.sequence : call.number, entry, kind);
    entry.connecting_ns = 0;  // the next call like this one has the entry again
  }
  // The next one's, most likely: the call is copied as a whole when it starts, which would wait for
  // a part of it that is stored just before.
  if (is_collective) ++call.arguments.call.number;
  unlock_progress();
  return true;
}

bool Scheduler::spin_inline(PreparedCall& call, Status& status) {
  std::int64_t& started_ns = call.entry.started_ns;
  if (started_ns == 0) started_ns = clock_.now_ns();
  // In simulated time nobody moves while this thread looks.
  const bool is_oversubscribed =
      options_.spins == 0 && !connections_.has_events() && world_.is_real();
  const auto most_spins = [&] {
    if (is_oversubscribed) return inline_yields;
    return may_be_woken(*call.execution) ? Backoff::spins_before_events(options_.spins)
                                         : options_.spins;
  };
  for (int spins = 0; spins <= most_spins(); ++spins) {
    if (call.execution->progressed())
      spins = 0;
    else if (is_oversubscribed)
      give_way(*call.execution, spins);
    else
      Backoff::pause();
    auto complete = call.execution->poll();
    if (!complete.ok()) {
      status = complete.take_error();
      return false;
    }
    if (*complete) return true;
    if (spins % rounds_between_looks < rounds_between_looks - 1) continue;
    if (clock_.now_ns() - started_ns > longest_turn_ns) return false;
    if (is_oversubscribed && spins >= polls_of_absent - 1 && awaits_absent(call)) return false;
  }
  return false;
}

bool Scheduler::awaits_absent(const PreparedCall& call) const {
  return call.entry.collective != Collective::point_to_point &&
         status_page_.any_elsewhere([&](int peer) { return call.execution->awaits(peer); });
}

bool Scheduler::may_be_woken() const {
  const auto task_may = [this](const Task* task) { return may_be_woken(*task->execution); };
  return (current_ != nullptr && task_may(current_)) || std::ranges::any_of(messages_, task_may);
}

void Scheduler::give_way(const engine::Execution& execution, int spins) {
  const bool needs_core =
      status_page_.any_at_rest([&](int peer) { return execution.awaits(peer); });
  if (needs_core || spins % looks_before_yield == looks_before_yield - 1) {
    status_page_.rests();
    world_.yield();
    status_page_.runs_on(sched_getcpu());
  } else {
    Backoff::pause();
  }
}

Status Scheduler::wait_after_inline(PreparedCall& call, const Status& status) {
  trace::Entry& entry = call.entry;
  if (entry.started_ns == 0) entry.started_ns = clock_.now_ns();
  entry.scheduled_ns = entry.started_ns;
  entry.ended_ns = entry.connecting_ns = entry.reducing_ns = 0;
  Task task;
  static_cast<PreparedCall&>(task) = call;
  task.in_order = !entry.is_message();
  if (entry.is_message())
    task.parts.push_back({.number = call.number,
                          .sequence = entry.sequence,
                          .bytes = entry.bytes,
                          .peer = entry.peer,
                          .messages = entry.messages,
                          .is_send = entry.is_send});
  set_started(task);
  task.connecting_before_ns = connecting_seen_ns_;
  task.deadline_ns = entry.started_ns + call.arguments.timeout_ns();
  task.phase.store(Task::Phase::running, std::memory_order_relaxed);
  write(task);
  if (task.in_order)
    current_ = &task;
  else
    messages_.push_back(&task);
  count_call(1);
  if (!status.ok()) suspect(status.error());
  end_inline();
  return wait(task, INT64_MAX);
}

Status Scheduler::run(Task& task) {
  UNISONO_TRY(failure());
  waiters_.fetch_add(1);
  Status status;
  if (try_begin_inline()) {
    count_call(1);
    start(task);
    end_inline();
  }
  if (task.phase.load(std::memory_order_relaxed) == Task::Phase::idle) status = enqueue(task);
  if (status.ok()) status = wait(task, INT64_MAX);
  waiters_.fetch_sub(1);
  if (!idle()) wake_progress_thread();
  return status;
}

Status Scheduler::submit(Task& task) {
  waiters_.fetch_add(1);
  Status status;
  if (try_begin_inline()) {
    count_call(1);
    if (!task.in_order) messages_.push_back(&task);
    start(task);
    do round();
    while (!task.done() && now_ns() - task.entry.started_ns < handover_ns);
    end_inline();
  } else {
    status = enqueue(task);
  }
  waiters_.fetch_sub(1);
  if (!idle()) wake_progress_thread();
  return status;
}

Status Scheduler::enqueue(Task& task) {
  UNISONO_TRY(failure());
  const std::lock_guard lock(queue_mutex_);
  task.phase.store(Task::Phase::queued, std::memory_order_relaxed);
  (task.in_order ? queued_in_order_ : queued_messages_).push_back(&task);
  count_call(1);
  has_queued_.store(true, std::memory_order_release);
  return {};
}

Status Scheduler::wait(Task& task, std::int64_t until_ns) {
  if (task.done()) return task.outcome();
  waiters_.fetch_add(1);
  Backoff backoff(world_, options_.spins, options_.longest_sleep_ns);
  InterruptWatch interrupts;
  Status gave_up;
  while (!task.done()) {
    advance(backoff);
    if (interrupts.interrupted()) {
      Error error = aborted_error("rank ", options_.rank, " was interrupted in call ",
                                  task.entry.sequence, " (", name(task.entry.collective), ")");
      error.peer = options_.rank;
      fail(error);
    }
    if (until_ns != INT64_MAX && now_ns() >= until_ns && !task.done()) {
      gave_up = timeout_error(-1, "call ", task.entry.sequence, " (", name(task.entry.collective),
                              ") is not complete yet on rank ", options_.rank);
      break;
    }
  }
  waiters_.fetch_sub(1);
  if (!idle()) wake_progress_thread();
  if (!gave_up.ok()) return gave_up;
  return task.outcome();
}

// What is thrown must not leave the lock taken.
bool Scheduler::round() {
  try {
    return try_round();
  } catch (const std::bad_alloc&) {
    fail_for_memory();
    return false;
  }
}

bool Scheduler::try_round() {
  if (failed_.load(std::memory_order_acquire)) {
    fail_pending(failure_pointer());
    return false;
  }
  if (inquest_) {
    go_on_with_inquest();
    return false;
  }
  bool moved = poll_collective();
  if (!messages_.empty() || has_queued_.load(std::memory_order_acquire)) moved |= poll_messages();
  idle_rounds_ = moved ? 0 : idle_rounds_ + 1;
  if (idle_rounds_ % rounds_between_looks == rounds_between_looks - 1) poll_peers();
  return moved;
}

bool Scheduler::poll_collective() {
  if (current_ == nullptr && has_queued_.load(std::memory_order_acquire)) {
    Task* next = nullptr;
    {
      const std::lock_guard lock(queue_mutex_);
      if (!queued_in_order_.empty()) {
        next = queued_in_order_.front();
        queued_in_order_.pop_front();
      }
      has_queued_.store(!queued_in_order_.empty() || !queued_messages_.empty(),
                        std::memory_order_relaxed);
    }
    if (next != nullptr && !start(*next)) return true;
  }
  return current_ != nullptr && poll(*current_);
}

bool Scheduler::poll_messages() {
  const std::size_t running = messages_.size();
  if (has_queued_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(queue_mutex_);
    messages_.insert(messages_.end(), queued_messages_.begin(), queued_messages_.end());
    queued_messages_.clear();
    has_queued_.store(!queued_in_order_.empty(), std::memory_order_relaxed);
  }
  for (std::size_t i = running; i < messages_.size(); ++i)
    if (!start(*messages_[i])) return true;
  bool moved = messages_.size() > running;
  for (std::size_t i = 0; i < messages_.size();) {
    Task* const task = messages_[i];
    moved |= poll(*task);
    // A task that has finished is off the list, and the next one in its place.
    if (i < messages_.size() && messages_[i] == task) ++i;
  }
  return moved;
}

void Scheduler::count_call(int change) {
  pending_.fetch_add(change);
  group_.call_state().calls.fetch_add(change, std::memory_order_relaxed);
}

bool Scheduler::start(Task& task) {
  if (task.in_order) current_ = &task;
  task.phase.store(Task::Phase::running, std::memory_order_relaxed);
  task.entry.started_ns = now_ns();
  task.connecting_before_ns = connections_.connecting_ns();
  set_started(task);
  write(task);
  if (task.entry.collective != Collective::point_to_point) {
    task.arguments.call.number = static_cast<std::uint32_t>(status_page_.joined());
    status_page_.shows(task.arguments.call);
  }
  try {
    const Status started = task.execution->start(task.arguments);
    if (!started.ok()) suspect(started.error());
    return started.ok();
  } catch (const std::bad_alloc&) {
    fail_for_memory();
    return false;
  }
}

bool Scheduler::poll(Task& task) {
  auto complete = task.execution->poll();
  if (!complete.ok()) {
    suspect(complete.error());
    return true;
  }
  if (*complete) {
    finish(task, nullptr);
    return true;
  }
  return task.execution->progressed();
}

void Scheduler::finish(Task& task, std::shared_ptr<const Error> error) {
  task.entry.waiting = {};
  if (error) {
    close(task, *error);
  } else if (task.arguments.is_on_stream()) {
    const std::int64_t timeout_ns = task.arguments.timeout_ns();
    trace::Entry entry = task.entry;
    if (!entry.is_message()) launched(entry, entry.sequence, timeout_ns);
    for (const Task::Part& part : task.parts) {
      entry = task.recorded(part);
      launched(entry, part.number, timeout_ns);
    }
  } else {
    task.entry.state = trace::State::ended;
    task.entry.ended_ns = now_ns();
    count_times(task.entry, *task.execution, task.connecting_before_ns);
    write(task);
  }
  if (current_ == &task) current_ = nullptr;
  std::erase(messages_, &task);
  task.error = std::move(error);
  // A group gives its connections to the next one, even while its outcome is still read.
  task.execution = nullptr;
  task.owned.reset();
  task.lane.reset();
  const std::shared_ptr<void> keeps_alive = std::move(task.keeps_alive);
  count_call(-1);
  // After this store the task may be gone when `keeps_alive` is.
  task.phase.store(Task::Phase::done, std::memory_order_release);
}

}  // namespace unisono::comm
