// How a call runs on the calling thread and waits there for other ranks, as long as that pays; then
// it is a task.

#include <sched.h>

#include <algorithm>
#include <new>

#include "comm/run/out_of_memory.h"
#include "comm/run/scheduler.h"

namespace unisono::comm {
namespace {

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

}  // namespace

bool Scheduler::try_in_turn(PreparedCall& call, Status& status) {
  trace::Entry& entry = call.entry;
  const bool is_collective = entry.collective != Collective::point_to_point;
  if (is_collective) {
    // In the order in which they start, whichever thread has made them.
    const auto joined = static_cast<std::uint32_t>(status_page_.joined());
    if (call.arguments.call.number != joined) call.arguments.call.number = joined;
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
  const std::uint64_t number = is_collective ? entry.sequence : call.number;
  if (call.arguments.is_on_stream()) {
    log_.launched(*on_streams_.load(std::memory_order_relaxed), entry, number, call.arguments,
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
    log_.write(entry, number, kind);
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
  const engine::Execution& execution = *call.execution;
  const auto lost_turns = [this] { return world_.lost_turns(); };
  bool is_woken = false;
  bool gives_way = false;
  int most_spins = 0;
  const auto begin_wait = [&] {
    most_spins = spin_.begin(is_woken);
    // In simulated time nobody moves while this thread looks.
    gives_way = !is_woken && most_spins == 0 && world_.is_real();
    if (gives_way) most_spins = inline_yields;
  };
  // Where there are connections to other hosts, each wait is one of its own.
  const auto look_at_wait = [&](int spins) {
    const bool may_be_woken = woken_by(execution) != WokenBy::time;
    const bool has_changed = may_be_woken != is_woken;
    is_woken = may_be_woken;
    if (spins == 0 || has_changed) begin_wait();
    connections_.set_looks(is_woken ? most_spins > 0 : SpinChoice::looks_for_others(spins));
  };
  // The end of a wait, if there was one.
  const auto has_come = [&] {
    if (is_woken && most_spins > 0) spin_.came(lost_turns);
  };
  if (!connections_.has_events()) begin_wait();
  for (int spins = 0;; ++spins) {
    const bool has_moved = execution.progressed();
    if (has_moved) {
      if (spins > 0) has_come();
      spins = 0;
    }
    if (connections_.has_events()) [[unlikely]]
      look_at_wait(spins);
    if (spins > most_spins) {
      if (is_woken && most_spins > 0) spin_.in_vain();
      return false;
    }
    if (gives_way)
      give_way(execution, spins);
    else if (!has_moved)
      Backoff::pause();
    auto complete = call.execution->poll();
    if (!complete.ok()) {
      status = complete.take_error();
      return false;
    }
    if (*complete) {
      has_come();
      return true;
    }
    if (spins % rounds_between_looks < rounds_between_looks - 1) continue;
    if (clock_.now_ns() - started_ns > longest_turn_ns) return false;
    if (gives_way && spins >= polls_of_absent - 1 && awaits_absent(call)) return false;
    if (!is_woken && !gives_way && spin_.lost_turns(lost_turns)) {
      gives_way = true;
      most_spins = inline_yields;
    }
  }
}

bool Scheduler::awaits_absent(const PreparedCall& call) const {
  return call.entry.collective != Collective::point_to_point &&
         status_page_.any_elsewhere([&](int peer) { return call.execution->awaits(peer); });
}

WokenBy Scheduler::woken_by(const engine::Execution& execution) const {
  if (!connections_.has_events() || !execution.awaits_event()) return WokenBy::time;
  return execution.awaits_memory() ? WokenBy::either : WokenBy::event;
}

WokenBy Scheduler::woken_by() const {
  std::optional<WokenBy> all;
  const auto add = [&](const Task& task) {
    const WokenBy one = woken_by(*task.execution);
    all = !all || *all == one ? one : WokenBy::either;
  };
  if (current_ != nullptr) add(*current_);
  for (const Task* task : messages_) add(*task);
  return all.value_or(WokenBy::time);
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
  task.set_started();
  task.connecting_before_ns = connecting_seen_ns_;
  task.deadline_ns = entry.started_ns + call.arguments.timeout_ns();
  task.phase.store(Task::Phase::running, std::memory_order_relaxed);
  log_.write(task);
  if (task.in_order)
    current_ = &task;
  else
    messages_.push_back(&task);
  count_call(1);
  if (!status.ok()) suspect(status.error());
  end_inline();
  return wait(task, INT64_MAX);
}

void Scheduler::advance(Backoff& backoff) {
  bool moved = false;
  WokenBy by = WokenBy::time;
  if (try_lock_progress()) {
    connections_.set_looks(backoff.looks());
    moved = round();
    by = woken_by();
    unlock_progress();
  }
  if (moved)
    backoff.reset();
  else
    backoff.step([this](std::int64_t ns) { connections_.sleep(ns); }, by);
}

}  // namespace unisono::comm
