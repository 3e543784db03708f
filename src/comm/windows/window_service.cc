#include "comm/windows/window_service.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "transport/clock.h"

namespace unisono::comm {
namespace {

// Rounds in a row that find nothing before the thread rests, and how long it then rests: at first,
// and at most.
constexpr int rounds_before_rest = 20;
constexpr std::int64_t least_rest_ns = 50'000;
constexpr std::int64_t most_rest_ns = 1'000'000;
// Where an event ends the rest.
constexpr std::int64_t longest_rest_ns = 20'000'000;
// At the end, for answers and signals to leave.
constexpr std::int64_t patience_ns = 3 * transport::ns_per_s;

}  // namespace

// Holds the flag, if it was free.
class WindowService::Turn {
 public:
  explicit Turn(WindowService& service) : service_(service), has_it_(service.try_lock()) {}
  ~Turn() {
    if (has_it_) service_.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  explicit operator bool() const { return has_it_; }

 private:
  WindowService& service_;
  const bool has_it_;
};

WindowService::WindowService(std::shared_ptr<Job> job, const HostPath::Identity& identity,
                             const std::vector<int>& world_ranks)
    : job_(std::move(job)),
      world_(job_->sys_world()),
      connections_(job_, identity.communicator, identity.epoch, identity.rank, world_ranks),
      places_(world_ranks.size()) {}

Result<std::shared_ptr<WindowService>> WindowService::make(std::shared_ptr<Job> job,
                                                           const HostPath::Identity& identity,
                                                           const std::vector<int>& world_ranks,
                                                           std::span<const int> peers,
                                                           Signals& signals) {
  std::shared_ptr<WindowService> made(new WindowService(std::move(job), identity, world_ranks));
  for (const int peer : peers) {
    made->places_[static_cast<std::size_t>(peer)] = made->peers_.size();
    made->peers_.push_back(std::make_unique<WindowPeer>(made->connections_, made->windows_, signals,
                                                        made->job_->fifo_options(), identity.rank,
                                                        peer));
  }
  UNISONO_ASSIGN(made->thread_, made->world_.start_thread("serves windows to other hosts",
                                                          [&service = *made] { service.run(); }));
  return made;
}

WindowService::~WindowService() { stop(); }

// The thread that drives gives the flag back soon.
void WindowService::lock() {
  while (!try_lock()) world_.yield();
}

void WindowService::open(std::uint32_t window, std::span<std::byte> memory) {
  lock();
  windows_.open(window, memory);
  unlock();
}

void WindowService::close(std::uint32_t window) {
  lock();
  windows_.close(window);
  unlock();
}

Result<std::optional<std::size_t>> WindowService::try_put(int to, const WindowMessage& put,
                                                          std::span<const std::byte> data) {
  const Turn turn(*this);
  UNISONO_TRY(failure());
  if (!turn) return std::optional<std::size_t>();
  if (auto refusal = peer(to).take_refusal()) return std::move(*refusal);
  return peer(to).try_put(put, data);
}

Result<bool> WindowService::try_signal(int to, int signal) {
  const Turn turn(*this);
  UNISONO_TRY(failure());
  if (!turn) return false;
  return peer(to).try_signal(signal);
}

Result<bool> WindowService::try_ask(int of, const WindowMessage& message,
                                    const std::shared_ptr<WindowQuestion>& question) {
  const Turn turn(*this);
  UNISONO_TRY(failure());
  if (!turn) return false;
  return peer(of).try_ask(message, question);
}

Result<bool> WindowService::look_at(int of, const WindowQuestion& question) {
  const Turn turn(*this);
  UNISONO_TRY(failure());
  if (!turn || !question.is_answered) return false;
  if (auto refusal = peer(of).take_refusal()) return std::move(*refusal);
  if (question.refusal) return Error(*question.refusal);
  return true;
}

void WindowService::forget(WindowQuestion& question) {
  lock();
  question.destination = nullptr;
  unlock();
}

bool WindowService::advance() {
  const Turn turn(*this);
  if (!turn || has_failed_.load(std::memory_order_relaxed)) return false;
  auto moved = advance_all();
  if (moved.ok()) return *moved;
  fail(Error(moved.error()));
  return false;
}

Result<bool> WindowService::advance_all() {
  UNISONO_TRY(connections_.progress());
  bool moved = false;
  for (const auto& one : peers_) {
    UNISONO_ASSIGN(const bool has_moved, one->advance());
    moved |= has_moved;
  }
  return moved;
}

void WindowService::rest(std::int64_t at_most_ns) {
  world_.sleep(at_most_ns, connections_.has_events()
                               ? std::span<const int>(job_->event_descriptors())
                               : std::span<const int>());
}

Status WindowService::check_peer(int of) {
  const Turn turn(*this);
  UNISONO_TRY(failure());
  return turn ? connections_.check_peer(of) : Status();
}

void WindowService::fail(Error error) {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_) failure_ = std::move(error);
  has_failed_.store(true, std::memory_order_release);
}

Status WindowService::failure() const {
  if (!has_failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(failure_mutex_);
  return Error(*failure_);
}

void WindowService::abort(transport::Fault fault) { connections_.abort(fault); }

// Messages for other users of the sockets end a rest, too. After a rest that ended so, the thread
// sleeps for a time that nothing ends.
void WindowService::run() {
  std::int64_t rest_ns = least_rest_ns;
  bool was_for_nothing = false;
  for (int idle = 0; !stops_.load(std::memory_order_relaxed);) {
    if (advance()) {
      idle = 0;
      rest_ns = least_rest_ns;
      was_for_nothing = false;
      continue;
    }
    if (++idle <= rounds_before_rest) {
      world_.yield();
      continue;
    }
    if (connections_.has_events() && !was_for_nothing) {
      const std::int64_t since_ns = world_.now_ns();
      rest(longest_rest_ns);
      was_for_nothing = world_.now_ns() - since_ns < longest_rest_ns;
    } else {
      world_.sleep(rest_ns);
      rest_ns = std::min(2 * rest_ns, most_rest_ns);
      was_for_nothing = false;
    }
  }
}

bool WindowService::is_drained() const {
  return std::ranges::all_of(peers_, [](const auto& one) { return one->is_drained(); });
}

void WindowService::stop() {
  if (!thread_ || stops_.exchange(true)) return;
  thread_->join();
  const std::int64_t until_ns = world_.now_ns() + patience_ns;
  lock();
  while (!has_failed_.load(std::memory_order_relaxed) && !is_drained() &&
         world_.now_ns() < until_ns) {
    if (auto moved = advance_all(); !moved.ok()) fail(Error(moved.error()));
    world_.yield();
  }
  fail(misuse("the communicator of these windows was destroyed"));
  peers_.clear();
  connections_.close();
  unlock();
}

void WindowService::report(MemoryReport& report) const { connections_.report(report); }

}  // namespace unisono::comm
