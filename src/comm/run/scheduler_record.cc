// What the record says of a communicator's calls.

#include <algorithm>
#include <mutex>
#include <vector>

#include "comm/run/scheduler.h"

namespace unisono::comm {

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

void Scheduler::launched(const trace::Entry& entry, std::uint64_t number) {
  const StreamCalls::Launch launch = on_streams_.load(std::memory_order_relaxed)->last_launch();
  trace::Entry written = entry;
  written.state = trace::State::scheduled;
  written.started_ns = 0;
  written.ended_ns = 0;
  written.launched_ns = now_ns();
  written.is_captured = launch.is_captured;
  written.waiting = {};
  const bool is_message = entry.is_message();
  (is_message ? messages_record_ : collectives_record_).write(number, written);
  if (launch.is_captured) return;
  launched_.push_back({launch.number, number, entry.sequence, is_message});
  group_.call_state().calls.fetch_add(1, std::memory_order_relaxed);
}

void Scheduler::look_at_launched() {
  if (launched_.empty()) return;
  const std::uint64_t ended = on_streams_.load(std::memory_order_relaxed)->ended_launches();
  while (!launched_.empty() && launched_.front().launch <= ended) end_launched(trace::State::ended);
}

void Scheduler::end_launched(trace::State state) {
  const Launched call = launched_.front();
  launched_.pop_front();
  group_.call_state().calls.fetch_sub(1, std::memory_order_relaxed);
  trace::Ring& ring = call.is_message ? messages_record_ : collectives_record_;
  auto entry = ring.at(call.number);
  if (!entry || entry->sequence != call.sequence || entry->state != trace::State::scheduled) return;
  entry->state = state;
  entry->ended_ns = now_ns();
  ring.write(call.number, *entry);
}

void Scheduler::close_record(const Error& error) {
  has_closed_ = true;
  while (!launched_.empty())
    end_launched(error.aborted ? trace::State::aborted : trace::State::failed);
  if (current_ != nullptr) close(*current_, error);
  for (Task* task : messages_) close(*task, error);
  {
    const std::lock_guard lock(queue_mutex_);
    for (auto* const queue : {&queued_in_order_, &queued_messages_})
      for (Task* task : *queue) close(*task, error);
  }
  if (options_.on_failure) options_.on_failure();
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
