// What the record says of a communicator's calls.

#include <algorithm>
#include <array>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/units.h"
#include "comm/run/scheduler.h"
#include "trace/record.h"

namespace unisono::comm {
namespace {

// A kernel, or a stream that waits for copies, has the same deadline, and knows more.
constexpr std::int64_t patience_with_kernels_ns = 1'000'000'000;

}  // namespace

void Scheduler::write(const Task& task) {
  if (!task.entry.is_message()) collectives_record_.write(task.entry.sequence, task.recorded());
  for (const Task::Part& part : task.parts)
    messages_record_.write(part.number, task.recorded(part));
}

void Scheduler::close(Task& task, const Error& error) {
  task.entry.state = error.aborted ? trace::State::aborted : trace::State::failed;
  task.entry.ended_ns = now_ns();
  if (task.execution != nullptr &&
      task.phase.load(std::memory_order_relaxed) == Task::Phase::running)
    task.entry.waiting = task.execution->waiting();
  write(task);
}

void Scheduler::launched(trace::Entry& entry, std::uint64_t number,
                         const engine::Arguments& arguments, std::uint32_t kind) {
  const StreamCalls::Launch launch = on_streams_.load(std::memory_order_relaxed)->last_launch();
  entry.state = trace::State::scheduled;
  entry.started_ns = 0;
  entry.launched_ns = entry.ended_ns == 0 ? now_ns() : entry.ended_ns;
  entry.ended_ns = 0;
  entry.launch = launch.number;
  entry.is_captured = launch.is_captured;
  entry.capture = launch.is_captured ? launch.capture : 0;
  entry.waiting = {};
  trace::Ring& ring = entry.is_message() ? messages_record_ : collectives_record_;
  if (launch.fallback != trace::Fallback::none) [[unlikely]] {
    // The next call like it may take the chosen path.
    trace::Entry fallen = entry;
    fallen.fallback = launch.fallback;
    fallen.chosen = std::exchange(fallen.path, launch.instead).variant;
    ring.write(number, fallen);
  } else {
    // A call that is captured differs from others of its kind in more than its times.
    ring.write(number, entry, launch.is_captured ? 0 : kind);
  }
  if (launch.is_captured) {
    status_page_.captures();
  } else {
    launch_timeouts_ns_[launch.number % launch_timeouts_ns_.size()] = arguments.timeout_ns();
    launched_calls_[launch.number % most_launched] = {
        launch.number, entry.is_message() ? CallId{} : arguments.call};
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

void Scheduler::count_launched(bool is_open) {
  if (is_open == has_launched_) return;
  has_launched_ = is_open;
  group_.call_state().calls.fetch_add(is_open ? 1 : -1, std::memory_order_relaxed);
}

// A kernel that gave up, by itself or because the communicator has failed, is over on its stream,
// too, but it said so before. What ended since the look before counts as failed then.
void Scheduler::look_at_launched() {
  if (!has_launched_) return;
  StreamCalls& on_streams = *on_streams_.load(std::memory_order_relaxed);
  const std::uint64_t ended = on_streams.ended_launches();
  if (failed_.load(std::memory_order_acquire) || !on_streams.failure().ok()) return;
  if (std::exchange(ended_launches_, ended) != ended) open_since_ns_ = now_ns();
  launches_.saw_ended(ended, now_ns());
  show_launched();
  if (ended == on_streams.last_launch().number) count_launched(false);
}

std::optional<CallId> Scheduler::launched_call(std::uint64_t launch) const {
  const LaunchedCall& known = launched_calls_[launch % most_launched];
  return known.launch == launch && known.call.what != 0 ? std::optional(known.call) : std::nullopt;
}

void Scheduler::show_launched() {
  std::array<CallId, KeptLaunches::kept> calls;
  std::size_t count = 0;
  for (std::uint64_t back = 0; back <= ended_launches_ && back < most_launched; ++back)
    if (const auto call = launched_call(ended_launches_ + 1 - back)) {
      calls[count++] = *call;
      if (count == calls.size()) break;
    }
  status_page_.shows_launched(std::span(calls).first(count));
}

std::optional<Error> Scheduler::launched_mismatch(std::int64_t now) {
  if (!has_launched_ || now - open_since_ns_ < patience_before_comparing_ns) return std::nullopt;
  const auto open = launched_call(ended_launches_ + 1);
  if (const auto other = open ? status_page_.other_launched(*open) : std::nullopt)
    return peer_failure(FailureReason::mismatch, -1,
                        describe_mismatch(options_.communicator, options_.rank, other->ours,
                                          other->rank, other->theirs));
  // It takes some 10 ms to know what kernels wait for.
  if (now - last_compared_ns_ < patience_before_comparing_ns) return std::nullopt;
  last_compared_ns_ = now;
  for (const trace::Waiting& waiting : on_streams_.load(std::memory_order_relaxed)->long_waits())
    if (waiting.is_of_another_call)
      return peer_failure(FailureReason::mismatch, -1, "ranks disagree on a call of communicator ",
                          options_.communicator, ": a kernel of rank ", options_.rank, " in ",
                          open ? describe_call(open->what) : std::string("a group of messages"),
                          " waits for ", trace::describe(waiting));
  return std::nullopt;
}

std::optional<Error> Scheduler::overdue_launch(std::int64_t now) const {
  if (!has_launched_) return std::nullopt;
  const std::uint64_t open = ended_launches_ + 1;
  const std::int64_t timeout_ns = launch_timeouts_ns_[open % launch_timeouts_ns_.size()];
  const std::int64_t waited_ns = now - open_since_ns_;
  if (waited_ns - patience_with_kernels_ns < timeout_ns) return std::nullopt;
  std::string which = str("launch ", open);
  for (const trace::Ring* ring : {&collectives_record_, &messages_record_})
    for (const trace::Entry& entry : ring->read())
      if (entry.launch == open && !entry.is_captured)
        which = str("call ", entry.sequence, " (", name(entry.collective), ", plan ",
                    entry.plan.data(), ")");
  const std::string late = str(
      which, " of group ", options_.group, " (communicator ", options_.communicator, ") on rank ",
      options_.rank, " has not ended on its CUDA stream for ", format_duration_ns(waited_ns),
      ", longer than its timeout of ", format_duration_ns(timeout_ns));
  const auto waits = on_streams_.load(std::memory_order_relaxed)->long_waits();
  const auto outside = std::ranges::find_if(waits, &trace::Waiting::waits_outside);
  if (outside != waits.end())
    return timeout_error(outside->peer, late, ": a kernel waited for ", trace::describe(*outside));
  Error stuck =
      timeout_error(options_.rank, late,
                    ". No kernel is seen to wait for a peer: the stream stands, as a rule "
                    "because work before the call does not end");
  stuck.reason = FailureReason::device;
  return stuck;
}

void Scheduler::close_record(const Error& error) {
  has_closed_ = true;
  launches_.close(error.aborted ? trace::State::aborted : trace::State::failed, now_ns());
  count_launched(false);
  if (current_ != nullptr) close(*current_, error);
  for (Task* task : messages_) close(*task, error);
  {
    const std::lock_guard lock(queue_mutex_);
    for (auto* const queue : {&queued_in_order_, &queued_messages_})
      for (Task* task : *queue) close(*task, error);
  }
  if (options_.on_failure) options_.on_failure(error);
}

trace::Record Scheduler::record() const {
  trace::Record out;
  std::vector<trace::Entry> queued;
  {
    const std::lock_guard lock(queue_mutex_);
    for (const Task* task : queued_in_order_)
      if (!task->entry.is_message()) queued.push_back(task->recorded());
    for (const auto* const queue : {&queued_in_order_, &queued_messages_})
      for (const Task* task : *queue)
        for (const Task::Part& part : task->parts) queued.push_back(task->recorded(part));
  }
  // After the queues: what left them meanwhile is in the rings.
  out.collectives = collectives_record_.read();
  out.messages = messages_record_.read();
  launches_.apply(out.collectives);
  launches_.apply(out.messages);
  if (const StreamCalls* on_streams = on_streams_.load(std::memory_order_acquire))
    on_streams->complete_fallbacks(out.collectives);
  out.connections = connections_.traffic();
  for (const trace::Entry& entry : queued) {
    auto& known = entry.is_message() ? out.messages : out.collectives;
    const auto is_same = [&](const trace::Entry& other) {
      return other.sequence == entry.sequence && other.peer == entry.peer &&
             other.is_send == entry.is_send && other.message_tag == entry.message_tag &&
             other.scheduled_ns == entry.scheduled_ns;
    };
    if (std::ranges::none_of(known, is_same)) known.push_back(entry);
  }
  if (failed_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(failure_mutex_);
    out.failure = trace::Failure{.error = *failure_, .time_ns = failed_ns_};
  }
  return out;
}

trace::Record Scheduler::look_and_record() {
  if (try_lock_progress()) {
    look_at_launched();
    unlock_progress();
  }
  return record();
}

}  // namespace unisono::comm
