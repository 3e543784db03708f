#include "comm/run/call_log.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/units.h"
#include "comm/blame/inquiry.h"
#include "comm/control/control_group.h"

namespace unisono::comm {
namespace {

// A kernel, or a stream that waits for copies, has the same deadline, and knows more.
constexpr std::int64_t patience_with_kernels_ns = 1'000'000'000;

}  // namespace

void Launches::saw_ended(std::uint64_t launch, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (launch == 0 || closed_ || (!seen_.empty() && seen_.back().launch >= launch)) return;
  seen_.push_back({launch, now_ns, trace::State::ended});
  if (seen_.size() > most_) seen_.pop_front();
}

void Launches::close(trace::State state, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (!closed_) closed_ = Seen{0, now_ns, state};
}

void Launches::apply(std::vector<trace::Entry>& entries) const {
  const std::lock_guard lock(mutex_);
  for (trace::Entry& entry : entries) {
    if (entry.launch == 0 || entry.is_captured || entry.state != trace::State::scheduled) continue;
    const auto seen = std::ranges::lower_bound(seen_, entry.launch, {}, &Seen::launch);
    if (seen == seen_.end() && !closed_) continue;
    const Seen& told = seen == seen_.end() ? *closed_ : *seen;
    entry.state = told.state;
    entry.ended_ns = told.time_ns;
  }
}

CallLog::CallLog(Owner owner, std::size_t slots, sys::World& world, StatusPage& status_page,
                 ControlGroup& group)
    : owner_(std::move(owner)),
      world_(world),
      status_page_(status_page),
      group_(group),
      collectives_(slots),
      messages_(slots),
      launches_(slots) {}

void CallLog::write(const Task& task) {
  if (!task.entry.is_message()) collectives_.write(task.entry.sequence, task.recorded());
  for (const Task::Part& part : task.parts) messages_.write(part.number, task.recorded(part));
}

void CallLog::close(Task& task, const Error& error) {
  task.entry.state = error.aborted ? trace::State::aborted : trace::State::failed;
  task.entry.ended_ns = world_.now_ns();
  if (task.execution != nullptr &&
      task.phase.load(std::memory_order_relaxed) == Task::Phase::running)
    task.entry.waiting = task.execution->waiting();
  write(task);
}

void CallLog::close_launches(const Error& error) {
  launches_.close(error.aborted ? trace::State::aborted : trace::State::failed, world_.now_ns());
  count_launched(false);
}

void CallLog::launched(const StreamCalls& on_streams, trace::Entry& entry, std::uint64_t number,
                       const engine::Arguments& arguments, std::uint32_t kind) {
  const StreamCalls::Launch launch = on_streams.last_launch();
  entry.state = trace::State::scheduled;
  entry.started_ns = 0;
  entry.launched_ns = entry.ended_ns == 0 ? world_.now_ns() : entry.ended_ns;
  entry.ended_ns = 0;
  entry.launch = launch.number;
  entry.is_captured = launch.is_captured;
  entry.capture = launch.is_captured ? launch.capture : 0;
  entry.waiting = {};
  if (launch.fallback != trace::Fallback::none) [[unlikely]] {
    // The next call like it may take the chosen path.
    trace::Entry fallen = entry;
    fallen.fallback = launch.fallback;
    fallen.chosen = std::exchange(fallen.path, launch.instead).variant;
    write(fallen, number);
  } else {
    // A call that is captured differs from others of its kind in more than its times.
    write(entry, number, launch.is_captured ? 0 : kind);
  }
  if (launch.is_captured) {
    status_page_.captures();
  } else {
    launch_timeouts_ns_[launch.number % launch_timeouts_ns_.size()] = arguments.timeout_ns();
    launched_calls_[launch.number % most_launched] = {
        launch.number, entry.is_message() ? CallId{} : arguments.call, CallWait::of(entry, {})};
    if (!has_launched_) {
      ended_launches_ = launch.number - 1;
      open_since_ns_ = entry.launched_ns;
    }
    count_launched(true);
  }
  // A prepared call has its entry again, and may fail before its launch.
  entry.launched_ns = 0;
  entry.launch = 0;
  entry.is_captured = false;
}

void CallLog::count_launched(bool is_open) {
  if (is_open == has_launched_) return;
  has_launched_ = is_open;
  group_.call_state().calls.fetch_add(is_open ? 1 : -1, std::memory_order_relaxed);
}

// A kernel that gave up, by itself or because the communicator has failed, is over on its stream,
// too, but it said so before. What ended since the look before counts as failed then.
void CallLog::look_at_launched(StreamCalls& on_streams, const std::atomic<bool>& has_failed) {
  if (!has_launched_) return;
  const std::uint64_t ended = on_streams.ended_launches();
  if (has_failed.load(std::memory_order_acquire) || !on_streams.failure().ok()) return;
  if (std::exchange(ended_launches_, ended) != ended) open_since_ns_ = world_.now_ns();
  launches_.saw_ended(ended, world_.now_ns());
  show_launched();
  if (ended == on_streams.last_launch().number) count_launched(false);
}

std::optional<CallId> CallLog::launched_call(std::uint64_t launch) const {
  const LaunchedCall& known = launched_calls_[launch % most_launched];
  return known.launch == launch && known.call.what != 0 ? std::optional(known.call) : std::nullopt;
}

void CallLog::show_launched() {
  std::array<CallId, KeptLaunches::kept> calls;
  std::size_t count = 0;
  for (std::uint64_t back = 0; back <= ended_launches_ && back < most_launched; ++back)
    if (const auto call = launched_call(ended_launches_ + 1 - back)) {
      calls[count++] = *call;
      if (count == calls.size()) break;
    }
  status_page_.shows_launched(std::span(calls).first(count));
}

std::optional<Error> CallLog::launched_mismatch(const StreamCalls& on_streams, std::int64_t now) {
  if (!has_launched_ || now - open_since_ns_ < patience_before_comparing_ns) return std::nullopt;
  const auto open = launched_call(ended_launches_ + 1);
  if (const auto other = open ? status_page_.other_launched(*open) : std::nullopt)
    return peer_failure(FailureReason::mismatch, -1,
                        describe_mismatch(owner_.communicator, owner_.rank, other->ours,
                                          other->rank, other->theirs));
  // It takes some 10 ms to know what kernels wait for.
  if (now - last_compared_ns_ < patience_before_comparing_ns) return std::nullopt;
  last_compared_ns_ = now;
  for (const trace::Waiting& waiting : on_streams.long_waits())
    if (waiting.is_of_another_call)
      return peer_failure(FailureReason::mismatch, -1, "ranks disagree on a call of communicator ",
                          owner_.communicator,
                          waiting.thread_block < 0 ? ": a stream" : ": a kernel", " of rank ",
                          owner_.rank, " in ",
                          open ? describe_call(open->what) : std::string("a group of messages"),
                          " waits for ", trace::describe(waiting));
  return std::nullopt;
}

std::optional<Error> CallLog::overdue_launch(const StreamCalls& on_streams,
                                             std::int64_t now) const {
  if (!has_launched_) return std::nullopt;
  const std::uint64_t open = ended_launches_ + 1;
  const std::int64_t timeout_ns = launch_timeouts_ns_[open % launch_timeouts_ns_.size()];
  const std::int64_t waited_ns = now - open_since_ns_;
  if (waited_ns - patience_with_kernels_ns < timeout_ns) return std::nullopt;
  std::string which = str("launch ", open);
  for (const trace::Ring* ring : {&collectives_, &messages_})
    for (const trace::Entry& entry : ring->read())
      if (entry.launch == open && !entry.is_captured)
        which = str("call ", entry.sequence, " (", name(entry.collective), ", plan ",
                    entry.plan.data(), ")");
  const std::string late =
      str(which, " of group ", owner_.group, " (communicator ", owner_.communicator, ") on rank ",
          owner_.rank, " has not ended on its CUDA stream for ", format_duration_ns(waited_ns),
          ", longer than its timeout of ", format_duration_ns(timeout_ns));
  const auto waits = on_streams.long_waits();
  const auto outside = std::ranges::find_if(waits, &trace::Waiting::waits_outside);
  if (outside != waits.end())
    return timeout_error(outside->peer, late,
                         outside->thread_block < 0 ? ": a stream" : ": a kernel", " waited for ",
                         trace::describe(*outside));
  Error stuck =
      timeout_error(owner_.rank, late,
                    ". No kernel is seen to wait for a peer: the stream stands, as a rule "
                    "because work before the call does not end");
  stuck.reason = FailureReason::device;
  return stuck;
}

void CallLog::read(trace::Record& out) const {
  out.collectives = collectives_.read();
  out.messages = messages_.read();
  launches_.apply(out.collectives);
  launches_.apply(out.messages);
}

}  // namespace unisono::comm
