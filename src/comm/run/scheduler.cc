#include "comm/run/scheduler.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "comm/run/interrupt.h"

namespace unisono::comm {
namespace {

// Waking the progress thread costs the caller and the thread some microseconds each: an
// asynchronous call first runs as long on the calling thread, and small ones are complete then.
constexpr std::int64_t handover_ns = 5'000;
}  // namespace

Scheduler::Scheduler(Options options, sys::World& world, Connections& connections,
                     StatusPage& status_page, ControlGroup& group)
    : options_(std::move(options)),
      world_(world),
      connections_(connections),
      status_page_(status_page),
      group_(group),
      log_({options_.rank, options_.communicator, options_.group}, options_.record_slots, world,
           status_page, group),
      spin_(options_.spins, options_.adapts_spins),
      clock_(world),
      thread_wake_(world.make_condition()) {}

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
  stop_waiting();
  return status;
}

Status Scheduler::submit(Task& task) {
  waiters_.fetch_add(1);
  Status status;
  if (try_begin_inline()) {
    count_call(1);
    if (!task.in_order) messages_.push_back(&task);
    start(task);
    connections_.set_looks(true);
    do round();
    while (!task.done() && now_ns() - task.entry.started_ns < handover_ns);
    end_inline();
  } else {
    status = enqueue(task);
  }
  stop_waiting();
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
  Backoff backoff(world_, spin_, options_.longest_sleep_ns);
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
  stop_waiting();
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
  task.set_started();
  log_.write(task);
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
    log_.close(task, *error);
  } else if (task.arguments.is_on_stream()) {
    const StreamCalls& on_streams = *on_streams_.load(std::memory_order_relaxed);
    trace::Entry entry = task.entry;
    if (!entry.is_message()) log_.launched(on_streams, entry, entry.sequence, task.arguments);
    for (const Task::Part& part : task.parts) {
      entry = task.recorded(part);
      log_.launched(on_streams, entry, part.number, task.arguments);
    }
  } else {
    task.entry.state = trace::State::ended;
    task.entry.ended_ns = now_ns();
    count_times(task.entry, *task.execution, task.connecting_before_ns);
    log_.write(task);
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

void Scheduler::close_record(const Error& error) {
  has_closed_ = true;
  log_.close_launches(error);
  if (current_ != nullptr) log_.close(*current_, error);
  for (Task* task : messages_) log_.close(*task, error);
  {
    const std::lock_guard lock(queue_mutex_);
    for (auto* const queue : {&queued_in_order_, &queued_messages_})
      for (Task* task : *queue) log_.close(*task, error);
  }
  if (options_.on_failure) options_.on_failure(error);
}

trace::Record Scheduler::record() const {
  trace::Record out;
  std::vector<trace::Entry> queued;
  {
    const std::lock_guard lock(queue_mutex_);
    for (const auto* const queue : {&queued_in_order_, &queued_messages_})
      for (const Task* task : *queue) {
        if (!task->entry.is_message()) queued.push_back(task->recorded());
        for (const Task::Part& part : task->parts) queued.push_back(task->recorded(part));
      }
  }
  // After the queues: what left them meanwhile is in the rings.
  log_.read(out);
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

void Scheduler::look_at_launched() {
  if (!try_lock_progress()) return;
  if (StreamCalls* const on_streams = on_streams_.load(std::memory_order_acquire))
    log_.look_at_launched(*on_streams, failed_);
  unlock_progress();
}

}  // namespace unisono::comm
