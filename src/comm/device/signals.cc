#include "comm/device/signals.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/fast_clock.h"
#include "base/try.h"
#include "sys/shared_memory.h"

namespace unisono::comm {
namespace {

// Added to counters to end waits: more than any rank signals, and half of what wraps.
constexpr std::uint64_t ends_waits = std::uint64_t{1} << 62;
constexpr unsigned host_portable_mapped = 3;
constexpr std::size_t word_bytes = sizeof(std::uint64_t);
constexpr std::int64_t patience_at_end_ns = 1'000'000'000;

// The language orders accesses to an atomic through one address, and ranks that are threads of a
// process each map the counters. This one orders them: signals of this process.
std::atomic<std::uint64_t> signals_here{0};

// Behind the counters, each rank has a cache line that says whose turn it is with the words of its
// windows.
constexpr std::size_t turn_bytes = 64;
constexpr std::int64_t longest_turn_ns = 2'000'000'000;

std::size_t counters_bytes(std::size_t neighbours) {
  return neighbours * neighbours * signals_of_a_pair * word_bytes;
}
std::size_t bytes_of(std::size_t neighbours) {
  return counters_bytes(neighbours) + neighbours * turn_bytes;
}

// What a stream stores of its wait.
enum WaitState : std::uint64_t { not_reached = 0, waiting = 1, over = 2 };

}  // namespace

struct Signals::StreamWait {
  sys::cuda::MappedHostMemory state;
  int peer = 0;  // the first one that is waited for
  std::int64_t timeout_ns = 0;
  std::int64_t since_ns = 0;

  std::uint64_t now() const {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(state.data()))
        .load(std::memory_order_acquire);
  }
};

Signals::Signals(sys::World& world, std::string name, int rank, std::vector<int> neighbours,
                 int ranks, std::shared_ptr<std::byte> memory)
    : world_(world),
      name_(std::move(name)),
      rank_(rank),
      neighbours_(std::move(neighbours)),
      places_(static_cast<std::size_t>(ranks), -1),
      memory_(std::move(memory)),
      sent_(neighbours_.size() * signals_of_a_pair),
      taken_(neighbours_.size() * signals_of_a_pair) {
  for (std::size_t i = 0; i < neighbours_.size(); ++i)
    places_[static_cast<std::size_t>(neighbours_[i])] = static_cast<int>(i);
}

Result<std::unique_ptr<Signals>> Signals::open(sys::World& world, const std::string& name, int rank,
                                               std::vector<int> neighbours, int ranks) {
  std::string object = str(sys::handshake_prefix, "signals-", name);
  UNISONO_ASSIGN(auto memory, world.share_memory(object, bytes_of(neighbours.size())));
  return std::unique_ptr<Signals>(
      new Signals(world, std::move(object), rank, std::move(neighbours), ranks, std::move(memory)));
}

std::size_t Signals::bytes() const { return bytes_of(neighbours_.size()); }

Signals::~Signals() {
  if (!have_all_joined_) world_.remove_shared_name(name_);
  if (!device_) return;
  stop();
  const std::int64_t until_ns = steady_now_ns() + patience_at_end_ns;
  const auto is_pending = [](const StreamWait& wait) { return wait.now() != over; };
  while (std::ranges::any_of(stream_waits_, is_pending) && steady_now_ns() < until_ns)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  const sys::cuda::Current current(*device_);
  device_->driver().event_destroy(last_);
  device_->driver().host_unregister(memory_.get());
}

Status Signals::check(int peer, int signal) const {
  if (peer < 0 || peer >= static_cast<int>(places_.size()))
    return misuse("peer is ", peer, " in a signal on rank ", rank_, "; it must be 0 to ",
                  places_.size() - 1);
  if (signal < 0 || signal >= signals_of_a_pair)
    return misuse("signal is ", signal, " on rank ", rank_, "; it must be 0 to ",
                  signals_of_a_pair - 1);
  return {};
}

Status Signals::check_on_host(int peer, int signal) const {
  UNISONO_TRY(check(peer, signal));
  if (is_on_this_host(peer)) return {};
  return environment_error("ranks ", rank_, " and ", peer,
                           " are on different hosts; signals of streams, and puts into device "
                           "memory, work between ranks of one host only");
}

std::size_t Signals::place_of(int target, int source, int signal) const {
  const auto row = static_cast<std::size_t>(places_[static_cast<std::size_t>(target)]);
  const auto column = static_cast<std::size_t>(places_[static_cast<std::size_t>(source)]);
  return ((row * neighbours_.size() + column) * signals_of_a_pair +
          static_cast<std::size_t>(signal)) *
         word_bytes;
}

std::atomic_ref<std::uint64_t> Signals::counter(int target, int source, int signal) const {
  return std::atomic_ref(
      *reinterpret_cast<std::uint64_t*>(memory_.get() + place_of(target, source, signal)));
}

sys::cuda::DeviceAddress Signals::device_counter(int target, int source, int signal) const {
  return device_memory_ + place_of(target, source, signal);
}

std::uint64_t& Signals::own_count(std::vector<std::uint64_t>& counts, int peer, int signal) const {
  const auto place = static_cast<std::size_t>(places_[static_cast<std::size_t>(peer)]);
  return counts[place * signals_of_a_pair + static_cast<std::size_t>(signal)];
}

Status Signals::signal(int peer, int signal) {
  UNISONO_TRY(check_on_host(peer, signal));
  const std::lock_guard lock(mutex_);
  signals_here.fetch_add(1, std::memory_order_release);
  counter(peer, rank_, signal).store(++own_count(sent_, peer, signal), std::memory_order_release);
  return {};
}

void Signals::came_from_afar(int source, int signal) {
  const std::lock_guard lock(mutex_);
  ++from_afar_[source].come[static_cast<std::size_t>(signal)];
}

std::uint64_t Signals::come_of(const SignalWait& wait) {
  if (is_on_this_host(wait.peer))
    return counter(rank_, wait.peer, wait.signal).load(std::memory_order_acquire);
  return from_afar_[wait.peer].come[static_cast<std::size_t>(wait.signal)];
}

std::uint64_t& Signals::taken_of(const SignalWait& wait) {
  if (is_on_this_host(wait.peer)) return own_count(taken_, wait.peer, wait.signal);
  return from_afar_[wait.peer].taken[static_cast<std::size_t>(wait.signal)];
}

std::optional<SignalWait> Signals::take_or_miss(std::span<const SignalWait> waits) {
  for (std::size_t i = 0; i < waits.size(); ++i) {
    std::uint64_t& taken = taken_of(waits[i]);
    taken += waits[i].count;
    if (come_of(waits[i]) >= taken) continue;
    for (const SignalWait& counted : waits.first(i + 1)) taken_of(counted) -= counted.count;
    return waits[i];
  }
  return std::nullopt;
}

Result<bool> Signals::try_take(std::span<const SignalWait> waits) {
  for (const SignalWait& wait : waits) UNISONO_TRY(check(wait.peer, wait.signal));
  const std::lock_guard lock(mutex_);
  if (take_or_miss(waits)) return false;
  static_cast<void>(signals_here.load(std::memory_order_acquire));
  return true;
}

std::optional<SignalWait> Signals::find_missing(std::span<const SignalWait> waits) {
  const std::lock_guard lock(mutex_);
  const auto missing = take_or_miss(waits);
  if (!missing)
    for (const SignalWait& counted : waits) taken_of(counted) -= counted.count;
  return missing;
}

std::atomic_ref<std::uint64_t> Signals::turn_of(int target) const {
  const auto place = static_cast<std::size_t>(places_[static_cast<std::size_t>(target)]);
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(
      memory_.get() + counters_bytes(neighbours_.size()) + place * turn_bytes));
}

// Acquire, and release at the end: who has the next turn sees what this one has changed.
Status Signals::begin_turn(int target) {
  const auto mine = static_cast<std::uint64_t>(rank_) + 1;
  std::int64_t until_ns = 0;
  for (;;) {
    std::uint64_t holder = 0;
    if (turn_of(target).compare_exchange_weak(holder, mine, std::memory_order_acquire)) return {};
    if (holder == 0) continue;
    const std::int64_t now_ns = world_.now_ns();
    if (until_ns == 0) until_ns = now_ns + longest_turn_ns;
    if (now_ns >= until_ns) {
      const bool is_known = holder <= places_.size();
      const int peer = is_known ? static_cast<int>(holder) - 1 : -1;
      return peer_error(peer, "rank ", rank_, " waits to change a word of a window of rank ",
                        target, "; for ", longest_turn_ns / 1'000'000'000, " s it has been rank ",
                        peer, "'s turn, whose process may have ended in the middle of a change");
    }
    world_.yield();
  }
}

void Signals::end_turn(int target) { turn_of(target).store(0, std::memory_order_release); }

Status Signals::attach(const std::shared_ptr<const sys::cuda::Device>& device) {
  if (device_) return {};
  const sys::cuda::Driver& driver = device->driver();
  UNISONO_TRY(device->check(
      driver.host_register(memory_.get(), bytes(), host_portable_mapped),
      str("locking ", bytes(), " bytes of signals for CUDA device ", device->ordinal())));
  UNISONO_TRY(device->check(driver.host_address(&device_memory_, memory_.get(), 0),
                            "mapping signals for a device"));
  UNISONO_TRY(device->check(driver.event_create(&last_, sys::cuda::event_without_timing),
                            "making an event"));
  device_ = device;
  return {};
}

Status Signals::prepare(sys::cuda::StreamHandle* stream) {
  const sys::cuda::Driver& driver = device_->driver();
  int capturing = 0;
  UNISONO_TRY(device_->check(driver.stream_is_capturing(stream, &capturing),
                             "asking whether a stream is being captured"));
  if (capturing != 0)
    return misuse("a put, a signal or a wait for signals on rank ", rank_,
                  " cannot be captured into a CUDA graph: each one advances a counter, and a "
                  "replay would not");
  if (!last_stream_ || stream == *last_stream_) return {};
  return device_->check(driver.stream_wait_event(stream, last_, 0),
                        "ordering a signal after the one before");
}

Status Signals::done(sys::cuda::StreamHandle* stream) {
  last_stream_ = stream;
  return device_->check(device_->driver().event_record(last_, stream), "recording an event");
}

Status Signals::signal_on(const std::shared_ptr<const sys::cuda::Device>& device,
                          sys::cuda::StreamHandle* stream, int peer, int signal) {
  UNISONO_TRY(check_on_host(peer, signal));
  const std::lock_guard lock(mutex_);
  const sys::cuda::Current current(*device);
  UNISONO_TRY(attach(device));
  UNISONO_TRY(prepare(stream));
  UNISONO_TRY(
      device_->check(device_->driver().stream_write(stream, device_counter(peer, rank_, signal),
                                                    ++own_count(sent_, peer, signal), 0),
                     "putting a signal on a stream"));
  return done(stream);
}

Status Signals::take_on(const std::shared_ptr<const sys::cuda::Device>& device,
                        sys::cuda::StreamHandle* stream, std::span<const SignalWait> waits,
                        std::int64_t timeout_ns) {
  using sys::cuda::MemoryOperation;
  for (const SignalWait& wait : waits) UNISONO_TRY(check_on_host(wait.peer, wait.signal));
  if (waits.empty()) return {};
  const std::lock_guard lock(mutex_);
  const sys::cuda::Current current(*device);
  UNISONO_TRY(attach(device));
  UNISONO_TRY(prepare(stream));
  std::erase_if(stream_waits_, [](const StreamWait& wait) { return wait.now() == over; });
  StreamWait pending{.state = {}, .peer = waits.front().peer, .timeout_ns = timeout_ns};
  UNISONO_ASSIGN(pending.state, sys::cuda::MappedHostMemory::allocate(device, word_bytes));
  std::vector<MemoryOperation> operations;
  operations.push_back({MemoryOperation::write_value_64, pending.state.address(), waiting});
  for (const SignalWait& wait : waits) {
    std::uint64_t& taken = own_count(taken_, wait.peer, wait.signal);
    taken += wait.count;
    operations.push_back(
        {MemoryOperation::wait_value_64, device_counter(rank_, wait.peer, wait.signal), taken});
  }
  operations.push_back({MemoryOperation::write_value_64, pending.state.address(), over});
  UNISONO_TRY(
      device_->check(device_->driver().stream_operations(
                         stream, static_cast<unsigned>(operations.size()), operations.data(), 0),
                     "having a stream wait for signals"));
  stream_waits_.push_back(std::move(pending));
  if (is_stopped_) end_waits();
  return done(stream);
}

void Signals::look(std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  for (StreamWait& wait : stream_waits_) {
    if (wait.now() != waiting) continue;
    if (wait.since_ns == 0) wait.since_ns = now_ns;
    if (is_stopped_ || now_ns - wait.since_ns < wait.timeout_ns) continue;
    failure_ = timeout_error(wait.peer, "a stream of rank ", rank_, " on CUDA device ",
                             device_->ordinal(), " has waited ", wait.timeout_ns / 1'000'000,
                             " ms for a signal from rank ", wait.peer);
    is_stopped_ = true;
    end_waits();
  }
}

void Signals::stop() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_stopped_, true)) return;
  end_waits();
}

// Ends only the waits of this rank's row; other ranks end their own.
void Signals::end_waits() {
  if (stream_waits_.empty()) return;
  for (const int peer : neighbours_)
    for (int signal = 0; signal < signals_of_a_pair; ++signal)
      counter(rank_, peer, signal).store(ends_waits, std::memory_order_release);
}

Status Signals::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_ ? Status(*failure_) : Status();
}

std::size_t Signals::memory_bytes() const { return sys::resident_bytes(memory_.get(), bytes()); }

}  // namespace unisono::comm
