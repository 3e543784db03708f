// How a communicator's calls fail: deadlines, peers that are gone, and what others tell of them.

#include <algorithm>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/log.h"
#include "base/try.h"
#include "comm/run/out_of_memory.h"
#include "comm/run/scheduler.h"
#include "transport/fault.h"

namespace unisono::comm {
namespace {

// Looking for a dead peer costs a system call or two.
constexpr std::int64_t peer_check_interval_ns = 5'000'000;
// Listening on the control plane costs some microseconds. News goes from a rank to those 1, 2, 4,
// ... places away in one such step, so to all of 2^n ranks in (n + 1) / 2 steps: to a million in a
// quarter of a second.
constexpr std::int64_t listen_interval_ns = 20'000'000;
// A connection that takes longer than this to be made has its peer watched.
constexpr std::int64_t patience_before_watching_ns = 200'000'000;
// On other nodes: so many of them. Who differs is asked by those that wait for it, and asks, too.
constexpr std::size_t most_compared = 4;
// A peer that has done its part of a call may leave in order before that call is over here. One
// whose process ends without having left is given up at once.
constexpr std::int64_t patience_with_left_peer_ns = 10'000'000'000;

}  // namespace

void Scheduler::poll_peers() {
  const std::int64_t now = now_ns();
  if (has_overdue_call(now)) {
    // A peer that is gone says more than a deadline that has passed, and is agreed on sooner.
    look_at_waits(now);
    check_peers();
    begin_inquest(true, nullptr);
    return;
  }
  if (now - last_peer_check_ns_ < peer_check_interval_ns) return;
  last_peer_check_ns_ = now;
  look_at_waits(now);
  check_peers();
  if (inquest_) return;
  if (const auto told = status_page_.told()) fail_as_told(*told);
  if (now - last_listened_ns_ >= listen_interval_ns) listen(now);
}

bool Scheduler::has_overdue_call(std::int64_t now) {
  const auto look_at = [&](Task& task) {
    task.entry.waiting = task.execution->waiting();
    log_.write(task);
    return now >= task.deadline_ns;
  };
  bool is_overdue = current_ != nullptr && look_at(*current_);
  for (Task* task : messages_) is_overdue |= look_at(*task);
  // A call that waits for its turn has a deadline too.
  const std::lock_guard lock(queue_mutex_);
  return is_overdue || std::ranges::any_of(queued_in_order_, [&](const Task* task) {
           return now >= task->deadline_ns;
         });
}

void Scheduler::look_at_waits(std::int64_t now) {
  std::vector<Awaited> found;
  const auto look_at = [&](const Task& task) {
    for (const trace::Waiting& waiting : task.execution->waits()) {
      if (!waiting.waits_outside()) continue;
      const auto known = std::ranges::find(awaited_, waiting, &Awaited::waiting);
      found.push_back({.waiting = waiting,
                       .since_ns = known == awaited_.end() ? now : known->since_ns,
                       .timeout_ns = task.deadline_ns - task.entry.started_ns,
                       .call = CallWait::of(task.entry, waiting)});
    }
  };
  if (current_ != nullptr) look_at(*current_);
  for (const Task* task : messages_) look_at(*task);
  awaited_ = std::move(found);
  group_.call_state().waits.store(
      pack(awaited_.empty() ? log_.launched_wait() : awaited_.front().call),
      std::memory_order_relaxed);
}

void Scheduler::check_peers() {
  std::vector<int> peers;
  for (const Awaited& awaited : awaited_)
    if (awaited.waiting.peer >= 0) peers.push_back(awaited.waiting.peer);
  std::ranges::sort(peers);
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  for (const int peer : peers)
    if (auto status = connections_.check_peer(peer); !status.ok()) suspect(status.error());
  if (auto status = connections_.check_next(); !status.ok()) suspect(status.error());
}

void Scheduler::listen(std::int64_t now) {
  last_listened_ns_ = now;
  if (group_.size() == 1) return;
  if (const auto told = group_.look()) {
    fail(*told, own_part());
    return;
  }
  if (group_.call_state().is_inquiry_open.load(std::memory_order_relaxed))
    begin_inquest(false, nullptr);
  else if (!compare_calls(now))
    watch_peers(now);
}

bool Scheduler::compare_calls(std::int64_t now) {
  const bool is_patient = std::ranges::none_of(awaited_, [&](const Awaited& awaited) {
    return now - awaited.since_ns >= CallLog::patience_before_comparing_ns;
  });
  if (current_ == nullptr || is_patient) return false;
  auto disagreement = mismatch();
  std::size_t compared = 0;
  for (auto awaited = awaited_.begin(); awaited != awaited_.end() && !disagreement; ++awaited) {
    const int peer = awaited->waiting.peer;
    if (peer < 0 || peer == options_.rank || status_page_.has_line(peer)) continue;
    if (++compared > most_compared) break;
    disagreement = group_.compare(peer, status_page_.started() - 1, current_->arguments.call);
  }
  if (disagreement) fail_as_told(*disagreement);
  return disagreement.has_value();
}

void Scheduler::watch_peers(std::int64_t now) {
  unreachable_before_.swap(unreachable_);
  unreachable_.clear();
  for (const Awaited& awaited : awaited_) {
    const int peer = awaited.waiting.peer;
    if (awaited.waiting.kind != trace::Waiting::Kind::connection) continue;
    if (now - awaited.since_ns < patience_before_watching_ns) continue;
    const auto error = group_.watch(peer);
    if (!error) continue;
    unreachable_.push_back(peer);
    // The peer may have connected, done its part and gone since the task was polled last: so it
    // must have gone at the look before, too.
    if (std::ranges::find(unreachable_before_, peer) != unreachable_before_.end()) {
      suspect(*error);
      return;
    }
  }
}

void Scheduler::fail_as_told(const Error& told) {
  auto heard = group_.size() > 1 ? group_.look() : std::nullopt;
  if (!heard) heard = status_page_.told();
  fail(heard ? *heard : told, own_part());
}

void Scheduler::suspect(const Error& error) {
  if (error.reason == FailureReason::mismatch) {
    Error disagreement = mismatch().value_or(error);
    disagreement.peer = -1;  // neither is known to be right
    fail_as_told(disagreement);
    return;
  }
  const bool is_of_peer = error.kind == ErrorKind::peer && !error.timed_out && !error.aborted &&
                          error.peer >= 0 && error.peer < group_.size() &&
                          error.peer != options_.rank;
  if (is_of_peer)
    begin_inquest(false, &error);
  else if (error.kind == ErrorKind::peer)
    fail_as_told(error);
  else
    fail(error);
}

void Scheduler::begin_inquest(bool is_timeout, const Error* seen) {
  if (inquest_ || failed_.load(std::memory_order_acquire)) return;
  if (const auto disagreement = mismatch()) {
    fail(*disagreement);
    return;
  }
  const std::int64_t now = now_ns();
  look_at_waits(now);
  inquest_.emplace();
  inquest_->is_timeout = is_timeout;
  inquest_->collectives = status_page_.started();
  inquest_->call = current_ != nullptr ? current_->arguments.call : CallId{};
  if (const Task* const task = first_open())
    inquest_->waits = CallWait::of(task->entry, task->execution->waiting());
  auto& parts = inquest_->awaited;
  if (seen != nullptr)
    parts.push_back(
        {.member = seen->peer,
         .seen = seen->reason == FailureReason::left ? FailureReason::left : FailureReason::gone,
         .text = seen->message});
  for (const int peer : connections_.unanswered())
    if (std::ranges::find(parts, peer, &Inquest::Awaited::member) == parts.end())
      parts.push_back({.member = peer,
                       .seen = FailureReason::link,
                       .text = str("rank ", peer, " acknowledges nothing that was sent to it")});
  for (const Awaited& awaited : awaited_) {
    const int peer = awaited.waiting.peer;
    if (peer < 0 || peer == options_.rank) continue;
    const std::int64_t waited_ns = now - awaited.since_ns;
    const bool is_overdue = 2 * waited_ns >= awaited.timeout_ns;
    auto part = std::ranges::find(parts, peer, &Inquest::Awaited::member);
    if (part == parts.end())
      part = parts.insert(
          part, {.member = peer, .text = trace::describe(awaited.waiting), .waits = awaited.call});
    part->waited_ns = std::max(part->waited_ns, waited_ns);
    part->is_overdue |= is_overdue;
  }
  const auto distance = [&](const Inquest::Awaited& part) {
    return (part.member - options_.rank + group_.size()) % group_.size();
  };
  std::ranges::stable_sort(parts, [&](const auto& a, const auto& b) {
    const auto is_awaited = [](const Inquest::Awaited& part) {
      return part.seen == FailureReason::unknown;
    };
    return std::pair(is_awaited(a), distance(a)) < std::pair(is_awaited(b), distance(b));
  });
  if (parts.size() > max_awaited) parts.resize(max_awaited);
  last_listened_ns_ = 0;
  go_on_with_inquest();
}

std::optional<Error> Scheduler::mismatch() const {
  const auto other = status_page_.other_call();
  if (current_ == nullptr || !other) return std::nullopt;
  return peer_failure(FailureReason::mismatch, -1,
                      describe_mismatch(options_.communicator, options_.rank, other->ours,
                                        other->rank, other->theirs));
}

void Scheduler::go_on_with_inquest() {
  const std::int64_t now = now_ns();
  if (now - last_listened_ns_ < peer_check_interval_ns) return;
  last_listened_ns_ = now;
  if (const auto told = status_page_.told())
    fail_as_told(*told);
  else if (const auto verdict = group_.inquire(*inquest_))
    fail(*verdict, own_part());
}

const Task* Scheduler::first_open() const {
  if (current_ != nullptr) return current_;
  return messages_.empty() ? nullptr : messages_.front();
}

std::string Scheduler::own_part() {
  const Task* const task = first_open();
  if (task == nullptr) return {};
  std::string out = str("; rank ", options_.rank, " aborted call ", task->entry.sequence, " (",
                        name(task->entry.collective), ", plan ", task->entry.plan.data(),
                        ") of group ", options_.group, " (communicator ", options_.communicator,
                        ") while it waited for ", trace::describe(task->execution->waiting()));
  const std::vector<int> absent = current_ != nullptr ? status_page_.absent() : std::vector<int>{};
  if (!absent.empty()) out += str(". Ranks that have not joined this call: ", join(absent));
  return out;
}

void Scheduler::fail(const Error& error, const std::string& own_part) {
  const transport::Fault fault = transport::fault_of(error, options_.rank);
  Error told = error;
  told.peer = fault.rank;
  Error own = error;
  own.message += own_part;
  {
    // Held until all ranks are notified: a thread that learns of the failure here waits for that,
    // so it does not close connections or end the process before.
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_ = std::make_shared<const Error>(own);
    failed_ns_ = now_ns();
    failed_.store(true, std::memory_order_release);
    // First what says most: who sees the others looks whether this has come, too.
    group_.give_up(told);
    status_page_.give_up(fault, error);
    connections_.abort(fault);
    if (StreamCalls* const on_streams = on_streams_.load(std::memory_order_acquire))
      on_streams->abort(fault);
  }
  if (!error.aborted)
    log(LogLevel::error, "communicator ", options_.communicator, ", rank ", options_.rank, ": ",
        own.describe());
  // Where nobody drives, what is open is closed here.
  help();
}

void Scheduler::fail_pending(const std::shared_ptr<const Error>& error) {
  if (!has_closed_) close_record(*error);
  if (current_ != nullptr) finish(*current_, error);
  while (!messages_.empty()) finish(*messages_.back(), error);
  std::deque<Task*> queued;
  {
    const std::lock_guard lock(queue_mutex_);
    queued.swap(queued_in_order_);
    queued.insert(queued.end(), queued_messages_.begin(), queued_messages_.end());
    queued_messages_.clear();
    has_queued_.store(false, std::memory_order_relaxed);
  }
  for (Task* const task : queued) finish(*task, error);
}

void Scheduler::look_for_failure() {
  if (!failed_.load(std::memory_order_acquire) && idle()) {
    if (!try_lock_progress()) return;
    auto told = status_page_.told();
    if (!told && group_.size() > 1) told = group_.look();
    if (told)
      fail(*told);
    else if (inquest_)
      go_on_with_inquest();
    else if (const auto died = status_page_.died(StatusPage::Departure::exit))
      suspect(*died);
    unlock_progress();
  }
  if (failed_.load(std::memory_order_acquire)) help();
}

// What host calls learn on their way, calls that run on the device learn here.
void Scheduler::look_at_device() {
  StreamCalls& on_streams = *on_streams_.load(std::memory_order_acquire);
  on_streams.share_memory();
  on_streams.look(now_ns());
  look_at_launched();
  const bool has_failed = failed_.load(std::memory_order_acquire);
  if (const Status works = has_failed ? Status() : on_streams.check_device(); !works.ok()) {
    Error broken = works.error();
    broken.reason = FailureReason::device;
    fail(broken);
    return;
  }
  if (has_failed || !on_streams.is_busy()) {
    device_peer_left_ns_ = 0;
    look_for_failure();
    return;
  }
  if (auto status = on_streams.failure(); !status.ok()) {
    // What a neighbour told by its connection stands on the page already, in more words.
    const auto told = status_page_.told();
    fail(told ? *told : status.error());
    return;
  }
  if (!try_lock_progress()) return;
  const std::int64_t now = now_ns();
  if (inquest_) go_on_with_inquest();
  if (const auto told = status_page_.told()) fail_as_told(*told);
  // A call that was launched waits for no connection any more.
  look_at_waits(now);
  listen(now);
  if (const auto disagreement = log_.launched_mismatch(on_streams, now))
    fail_as_told(*disagreement);
  look_at_device_peers(now);
  if (const auto overdue = log_.overdue_launch(on_streams, now)) fail(*overdue);
  unlock_progress();
  if (failed_.load(std::memory_order_acquire)) help();
}

void Scheduler::look_at_device_peers(std::int64_t now) {
  if (const auto died = status_page_.died(StatusPage::Departure::destroyed)) {
    suspect(*died);
    return;
  }
  const Status lives = on_streams_.load(std::memory_order_acquire)->check_peers();
  if (lives.ok()) {
    device_peer_left_ns_ = 0;
  } else {
    if (device_peer_left_ns_ == 0) device_peer_left_ns_ = now;
    // One that has left in order may have done its part of the call.
    if (lives.error().reason != FailureReason::left ||
        now - device_peer_left_ns_ >= patience_with_left_peer_ns)
      suspect(lives.error());
  }
}

std::shared_ptr<const Error> Scheduler::failure_pointer() const {
  if (!failed_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

Status Scheduler::failure() const {
  if (auto error = failure_pointer()) return *error;
  return {};
}

void Scheduler::fail_for_memory() {
  try {
    fail(out_of_memory(options_.rank));
    // Not even for the words: the next round comes to it again.
    // NOLINTNEXTLINE(bugprone-empty-catch)
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace unisono::comm
