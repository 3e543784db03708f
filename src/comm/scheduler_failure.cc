// How a communicator's calls fail: deadlines, peers that are gone, and what others tell of them.

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "comm/scheduler.h"

namespace unisono::comm {
namespace {

// Looking for a dead peer costs a system call or two.
constexpr std::int64_t peer_check_interval_ns = 5'000'000;
// Listening on the control plane costs some microseconds. News goes from rank to rank in as many
// such steps as there are powers of two in the number of ranks, so 10 steps reach 1,024 ranks in
// half a second.
constexpr std::int64_t listen_interval_ns = 50'000'000;
// A connection that takes longer than this to be made has its peer watched.
constexpr std::int64_t patience_before_watching_ns = 200'000'000;
// A peer that has done its part of a call may leave before that call is over here.
constexpr std::int64_t patience_with_gone_peer_ns = 10'000'000'000;
// How long better news than a suspicion may take, from another node.
constexpr std::int64_t suspicion_ns = 500'000'000;

}  // namespace

void Scheduler::look_around() {
  const std::int64_t now = now_ns();
  if (current_ != nullptr) look_at(*current_, now);
  for (Task* task : messages_) look_at(*task, now);
  {
    // A call that waits for its turn has a deadline too.
    const std::lock_guard lock(queue_mutex_);
    for (Task* task : queued_in_order_)
      if (now >= task->deadline_ns) fail(timeout_of(*task));
  }
  if (now - last_peer_check_ns_ < peer_check_interval_ns) return;
  last_peer_check_ns_ = now;
  if (const auto told = board_.told()) fail(*told);
  if (now - last_listened_ns_ >= listen_interval_ns) listen(now);
}

void Scheduler::look_at(Task& task, std::int64_t now) {
  task.entry.waiting = task.execution->waiting();
  record_.write(task.entry);
  if (now >= task.deadline_ns) {
    fail(timeout_of(task));
    return;
  }
  if (now - last_peer_check_ns_ < peer_check_interval_ns) return;
  if (auto status = connections_.check_peers(task.entry.waiting); !status.ok())
    suspect(status.error());
}

void Scheduler::listen(std::int64_t now) {
  last_listened_ns_ = now;
  if (group_.size() == 1) return;
  if (const auto told = heard()) {
    fail(*told);
    return;
  }
  unreachable_before_.swap(unreachable_);
  unreachable_.clear();
  if (current_ != nullptr) watch_peer_of(*current_, now);
  for (const Task* task : messages_) watch_peer_of(*task, now);
}

std::optional<Error> Scheduler::heard() {
  auto told = group_.look();
  if (!told) return std::nullopt;
  told->kind = ErrorKind::peer;
  told->message = str("the control plane tells: ", told->message);
  return told;
}

void Scheduler::watch_peer_of(const Task& task, std::int64_t now) {
  const trace::Waiting& waiting = task.entry.waiting;
  if (waiting.kind != trace::Waiting::Kind::connection) return;
  if (now - task.entry.started_ns < patience_before_watching_ns) return;
  const auto error = group_.watch(waiting.peer);
  if (!error) return;
  unreachable_.push_back(waiting.peer);
  // The peer may have connected, done its part and gone since the task was polled last: so it must
  // have gone at the look before, too.
  if (std::ranges::find(unreachable_before_, waiting.peer) != unreachable_before_.end())
    suspect(*error);
}

void Scheduler::suspect(const Error& error) {
  if (error.kind != ErrorKind::peer || error.timed_out || error.aborted) {
    fail(error);
    return;
  }
  if (suspicion_) return;
  suspicion_ = error;
  const bool board_knows_all = static_cast<int>(board_.ranks()) == group_.size();
  suspicion_ends_ns_ = now_ns() + (board_knows_all ? 0 : suspicion_ns);
  weigh_suspicion();
}

void Scheduler::weigh_suspicion() {
  const std::int64_t now = now_ns();
  auto told = board_.told();
  if (!told && now - last_listened_ns_ >= peer_check_interval_ns) {
    last_listened_ns_ = now;
    told = heard();
  }
  if (told)
    fail(*told);
  else if (now >= suspicion_ends_ns_)
    fail(*suspicion_);
}

Error Scheduler::timeout_of(const Task& task) const {
  const trace::Waiting waiting = task.execution ? task.execution->waiting() : trace::Waiting{};
  const std::vector<int> absent = board_.absent(task.entry.sequence);
  std::string message =
      str("rank ", options_.rank, " gave up on call ", task.entry.sequence, " (",
          name(task.entry.collective), ", plan ", task.entry.plan.data(), ") of communicator ",
          options_.communicator, "; it waits for ", trace::describe(waiting));
  if (!absent.empty()) message += str(". Ranks that have not joined this call: ", join(absent));
  return timeout_error(absent.empty() ? waiting.peer : absent.front(), message);
}

void Scheduler::fail(const Error& error) {
  using Kind = transport::Fault::Kind;
  const Kind kind = error.aborted     ? Kind::aborted
                    : error.timed_out ? Kind::timed_out
                                      : Kind::failed;
  const transport::Fault fault{kind, error.peer >= 0 ? error.peer : options_.rank};
  Error told = error;
  told.peer = fault.rank;
  {
    // Held until all are told: who learns of the failure here waits for that, and so does not close
    // connections and end the process before.
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_ = std::make_shared<const Error>(error);
    failed_.store(true, std::memory_order_release);
    board_.give_up(fault);
    connections_.abort(fault);
    if (DeviceConnections* const device = device_.load(std::memory_order_acquire))
      device->abort(fault);
    group_.give_up(told);
  }
  if (!error.aborted)
    log(LogLevel::error, "communicator ", options_.communicator, ", rank ", options_.rank, ": ",
        error.describe());
}

// What host calls learn on their way, calls that run on the device learn here.
void Scheduler::look_at_device() {
  DeviceConnections& device = *device_.load(std::memory_order_acquire);
  device.share_memory();
  device.look(now_ns());
  const bool has_failed = failed_.load(std::memory_order_acquire);
  if (const Status works = has_failed ? Status() : device.check_device(); !works.ok()) {
    fail(works.error());
    return;
  }
  if (has_failed || !device.is_busy()) {
    device_peer_gone_ns_ = 0;
    return;
  }
  if (auto status = device.failure(); !status.ok()) {
    fail(status.error());
    return;
  }
  if (!take_seat()) return;
  const std::int64_t now = now_ns();
  if (suspicion_) weigh_suspicion();
  if (const auto told = board_.told()) fail(*told);
  listen(now);
  const Status lives = device.check_peers();
  if (lives.ok()) {
    device_peer_gone_ns_ = 0;
  } else {
    if (device_peer_gone_ns_ == 0) device_peer_gone_ns_ = now;
    if (now - device_peer_gone_ns_ >= patience_with_gone_peer_ns) suspect(lives.error());
  }
  leave_seat();
}

}  // namespace unisono::comm
