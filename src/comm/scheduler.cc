#include "comm/scheduler.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "comm/interrupt.h"

namespace unisono::comm {
namespace {

// Looking at the clock costs some 25 ns; every 64th idle poll is often enough.
constexpr std::int64_t rounds_between_looks = 64;
// How long a call may spin in its turn, however many spins are set, before it looks for failures,
// deadlines and the death of peers as any other does.
constexpr std::int64_t longest_turn_ns = 10'000'000;
// Crowded ranks that only wait for each other yield so often, about a millisecond, before one
// sleeps. Those with asynchronous calls have work to do on the core: they wait as Backoff says.
constexpr int yields_in_turn = 200;
// Copied in less time than the clock is exact to.
constexpr std::uint64_t few_bytes = 4096;
// Looking for a dead peer costs a system call or two.
constexpr std::int64_t peer_check_interval_ns = 5'000'000;
// Listening on the control plane costs some microseconds. News goes from rank to rank in as many
// such steps as there are powers of two in the number of ranks, so 10 steps reach 1,024 ranks in
// half a second.
constexpr std::int64_t listen_interval_ns = 50'000'000;
// A connection that takes longer than this to be made has its peer watched.
constexpr std::int64_t patience_before_watching_ns = 200'000'000;
// Waking the progress thread costs the caller and the thread some microseconds each: an
// asynchronous call first runs as long on the calling thread, and small ones are complete then.
constexpr std::int64_t handover_ns = 5'000;
// How long better news than a suspicion may take, from another node.
constexpr std::int64_t suspicion_ns = 500'000'000;

}  // namespace

Scheduler::Scheduler(Options options, Connections& connections, Board& board, ControlGroup& group)
    : options_(options),
      connections_(connections),
      board_(board),
      group_(group),
      record_(options.record_slots) {}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(thread_mutex_);
    stopping_ = true;
  }
  thread_wake_.notify_all();
  if (thread_.joinable()) thread_.join();
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

bool Scheduler::take_turn() {
  if (!idle() || !take_seat()) return false;
  if (idle() && !failed_.load(std::memory_order_acquire) && !suspicion_) [[likely]]
    return true;
  leave_seat();
  return false;
}

bool Scheduler::run_in_turn(const Turn& turn, Status& status) {
  trace::Entry& entry = turn.entry;
  entry.state = trace::State::started;
  entry.ended_ns = 0;
  const bool is_collective = entry.collective != Collective::point_to_point;
  if (is_collective) board_.joined(entry.sequence);
  // Of a call that moves a few bytes the clock is read when it first has to wait for a peer, where
  // reading costs nothing.
  entry.started_ns = entry.bytes <= few_bytes ? 0 : clock_.now_ns();
  status = turn.execution.start(turn.arguments);
  const bool may_be_woken = connections_.has_events();
  const bool is_crowded = options_.spins == 0 && !may_be_woken;
  const int most_spins = is_crowded     ? yields_in_turn
                         : may_be_woken ? Backoff::spins_before_events(options_.spins)
                                        : options_.spins;
  for (int spins = 0; status.ok() && spins <= most_spins; ++spins) {
    auto complete = turn.execution.poll();
    if (!complete.ok()) {
      status = complete.take_error();
      break;
    }
    if (*complete) {
      entry.state = trace::State::completed;
      entry.ended_ns = clock_.now_ns();
      if (entry.started_ns == 0) entry.started_ns = entry.ended_ns;
      entry.enqueued_ns = entry.started_ns;
      record_.write(entry);
      leave_seat();
      return true;
    }
    if (entry.started_ns == 0) entry.started_ns = clock_.now_ns();
    if (turn.execution.progressed()) {
      spins = 0;
      continue;
    }
    if (is_crowded)
      sched_yield();
    else
      Backoff::pause();
    const bool looks = spins % rounds_between_looks == rounds_between_looks - 1;
    if (looks && clock_.now_ns() - entry.started_ns > longest_turn_ns) break;
  }
  return false;
}

Status Scheduler::wait_after_turn(const Turn& turn, const Status& status) {
  trace::Entry& entry = turn.entry;
  if (entry.started_ns == 0) entry.started_ns = clock_.now_ns();
  entry.enqueued_ns = entry.started_ns;
  Task task;
  task.execution = &turn.execution;
  task.arguments = turn.arguments;
  task.entry = entry;
  task.deadline_ns = entry.started_ns + turn.timeout_ns;
  task.phase.store(Task::Phase::running, std::memory_order_relaxed);
  record_.write(entry);
  if (entry.collective != Collective::point_to_point)
    current_ = &task;
  else
    messages_.push_back(&task);
  pending_.fetch_add(1);
  if (!status.ok()) suspect(status.error());
  leave_turn();
  return wait(task, INT64_MAX);
}

Status Scheduler::run(Task& task) {
  UNISONO_TRY(failure());
  waiters_.fetch_add(1);
  Status status;
  if (take_turn()) {
    pending_.fetch_add(1);
    start(task);
    leave_turn();
  }
  if (task.phase.load(std::memory_order_relaxed) == Task::Phase::idle) status = enqueue(task, true);
  if (status.ok()) status = wait(task, INT64_MAX);
  waiters_.fetch_sub(1);
  if (!idle()) wake_progress_thread();
  return status;
}

Status Scheduler::submit(Task& task, bool is_collective) {
  waiters_.fetch_add(1);
  Status status;
  if (take_turn()) {
    pending_.fetch_add(1);
    if (!is_collective) messages_.push_back(&task);
    start(task);
    do round();
    while (!task.done() && now_ns() - task.entry.started_ns < handover_ns);
    leave_turn();
  } else {
    status = enqueue(task, is_collective);
  }
  waiters_.fetch_sub(1);
  if (!idle()) wake_progress_thread();
  return status;
}

Status Scheduler::enqueue(Task& task, bool is_collective) {
  UNISONO_TRY(failure());
  const std::lock_guard lock(queue_mutex_);
  task.phase.store(Task::Phase::queued, std::memory_order_relaxed);
  pending_.fetch_add(1);
  (is_collective ? queued_collectives_ : queued_messages_).push_back(&task);
  has_queued_.store(true, std::memory_order_release);
  return {};
}

Status Scheduler::wait(Task& task, std::int64_t until_ns) {
  if (task.done()) return task.outcome();
  waiters_.fetch_add(1);
  Backoff backoff(options_.spins);
  InterruptWatch interrupts;
  Status gave_up;
  while (!task.done()) {
    bool moved = false;
    if (take_seat()) {
      moved = round();
      leave_seat();
    }
    if (interrupts.interrupted()) {
      Error error = aborted_error("rank ", options_.rank, " was interrupted in call ",
                                  task.entry.sequence, " (", name(task.entry.collective), ")");
      error.peer = options_.rank;
      fail(error);
    }
    if (moved) {
      backoff.reset();
      continue;
    }
    backoff.step([this](std::int64_t ns) { connections_.sleep(ns); }, connections_.has_events());
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

void Scheduler::help() {
  if (!take_seat()) return;
  round();
  leave_seat();
}

bool Scheduler::round() {
  if (failed_.load(std::memory_order_acquire)) {
    fail_pending(failure_pointer());
    return false;
  }
  if (suspicion_) {
    weigh_suspicion();
    return false;
  }
  bool moved = poll_collective();
  if (!messages_.empty() || has_queued_.load(std::memory_order_acquire)) moved |= poll_messages();
  idle_rounds_ = moved ? 0 : idle_rounds_ + 1;
  if (idle_rounds_ % rounds_between_looks == rounds_between_looks - 1) look_around();
  return moved;
}

bool Scheduler::poll_collective() {
  if (current_ == nullptr && has_queued_.load(std::memory_order_acquire)) {
    Task* next = nullptr;
    {
      const std::lock_guard lock(queue_mutex_);
      if (!queued_collectives_.empty()) {
        next = queued_collectives_.front();
        queued_collectives_.pop_front();
      }
      has_queued_.store(!queued_collectives_.empty() || !queued_messages_.empty(),
                        std::memory_order_relaxed);
    }
    if (next != nullptr) start(*next);
  }
  return current_ != nullptr && poll(*current_);
}

bool Scheduler::poll_messages() {
  const std::size_t running = messages_.size();
  if (has_queued_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(queue_mutex_);
    messages_.insert(messages_.end(), queued_messages_.begin(), queued_messages_.end());
    queued_messages_.clear();
    has_queued_.store(!queued_collectives_.empty(), std::memory_order_relaxed);
  }
  for (std::size_t i = running; i < messages_.size(); ++i) start(*messages_[i]);
  bool moved = messages_.size() > running;
  for (std::size_t i = 0; i < messages_.size();) {
    Task* const task = messages_[i];
    moved |= poll(*task);
    // A task that has finished is off the list, and the next one in its place.
    if (i < messages_.size() && messages_[i] == task) ++i;
  }
  return moved;
}

void Scheduler::start(Task& task) {
  const bool is_collective = task.owned == nullptr;
  if (is_collective) current_ = &task;
  task.phase.store(Task::Phase::running, std::memory_order_relaxed);
  task.entry.state = trace::State::started;
  task.entry.started_ns = now_ns();
  record_.write(task.entry);
  if (is_collective) board_.joined(task.entry.sequence);
  if (auto status = task.execution->start(task.arguments); !status.ok()) fail(status.error());
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
  task.entry.state = error ? trace::State::failed : trace::State::completed;
  task.entry.ended_ns = now_ns();
  task.entry.waiting = error && task.execution ? task.execution->waiting() : trace::Waiting{};
  record_.write(task.entry);
  if (current_ == &task) current_ = nullptr;
  std::erase(messages_, &task);
  task.error = std::move(error);
  // A group gives the connections that it holds to the next one, whoever still looks at its
  // outcome.
  task.execution = nullptr;
  task.owned.reset();
  task.lane.reset();
  const std::shared_ptr<void> keeps_alive = std::move(task.keeps_alive);
  pending_.fetch_sub(1);
  // After this store the task may be gone when `keeps_alive` is.
  task.phase.store(Task::Phase::done, std::memory_order_release);
}

void Scheduler::look_around() {
  const std::int64_t now = now_ns();
  if (current_ != nullptr) look_at(*current_, now);
  for (Task* task : messages_) look_at(*task, now);
  {
    // A call that waits for its turn has a deadline too.
    const std::lock_guard lock(queue_mutex_);
    for (Task* task : queued_collectives_)
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
    group_.give_up(told);
  }
  if (!error.aborted)
    log(LogLevel::error, "communicator ", options_.communicator, ", rank ", options_.rank, ": ",
        error.describe());
}

void Scheduler::fail_pending(const std::shared_ptr<const Error>& error) {
  std::vector<Task*> tasks(messages_);
  if (current_ != nullptr) tasks.push_back(current_);
  {
    const std::lock_guard lock(queue_mutex_);
    tasks.insert(tasks.end(), queued_collectives_.begin(), queued_collectives_.end());
    tasks.insert(tasks.end(), queued_messages_.begin(), queued_messages_.end());
    queued_collectives_.clear();
    queued_messages_.clear();
    has_queued_.store(false, std::memory_order_relaxed);
  }
  for (Task* task : tasks) finish(*task, error);
}

void Scheduler::wake_progress_thread() {
  if (waiters_.load() > 0) return;
  const std::lock_guard lock(thread_mutex_);
  if (!thread_.joinable() && !stopping_) thread_ = std::thread([this] { run_progress_thread(); });
  thread_wake_.notify_one();
}

void Scheduler::run_progress_thread() {
  set_log_rank(options_.rank);
  Backoff backoff(options_.spins);
  std::unique_lock lock(thread_mutex_);
  while (!stopping_) {
    const bool needed = !idle() && waiters_.load() == 0;
    if (!needed) {
      thread_wake_.wait(lock);
      backoff.reset();
      continue;
    }
    lock.unlock();
    bool moved = false;
    if (take_seat()) {
      moved = round();
      leave_seat();
    }
    if (moved)
      backoff.reset();
    else
      backoff.step([this](std::int64_t ns) { connections_.sleep(ns); }, connections_.has_events());
    lock.lock();
  }
}

Scheduler::Pause::Pause(Scheduler& scheduler) : scheduler_(scheduler) {
  Backoff backoff(100);
  while (!scheduler_.take_seat()) backoff.step();
}

}  // namespace unisono::comm
