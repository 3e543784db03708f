#include "comm/device/kernel_stamps.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/fast_clock.h"
#include "base/try.h"

namespace unisono::comm {
namespace {

// It neither waits for the default stream nor lets that wait.
constexpr unsigned stream_non_blocking = 1;
constexpr std::uint64_t captured_call = std::uint64_t{1} << 47;
constexpr std::uint64_t number_mask = device::stamp_goes_on - 1;
static_assert(device::stamp_goes_on < captured_call);
constexpr std::uint64_t device_time_mask = (std::uint64_t{1} << 48) - 1;

}  // namespace

Result<std::unique_ptr<KernelStamps>> KernelStamps::make(const engine::gpu::Engine& engine,
                                                         std::int64_t now_ns) {
  std::unique_ptr<KernelStamps> made(new KernelStamps(engine, now_ns));
  UNISONO_ASSIGN(made->copy_, sys::cuda::MappedHostMemory::allocate(engine.shared_device(),
                                                                    sizeof(device::StampBoard)));
  const sys::cuda::Current current(engine.device());
  UNISONO_TRY(engine.device().check(
      engine.device().driver().stream_create(&made->stream_, stream_non_blocking),
      "making a stream"));
  return made;
}

KernelStamps::~KernelStamps() {
  if (stream_ == nullptr) return;
  const sys::cuda::Current current(engine_.device());
  // A copy must not come to memory that is given back.
  if (is_copying_) engine_.device().driver().stream_synchronize(stream_);
  engine_.device().driver().stream_destroy(stream_);
}

std::uint64_t KernelStamps::begin_launch(std::uint64_t number, bool is_captured,
                                         std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (is_captured)
    captures_[number % captures_.size()] = {number, now_ns};
  else
    begun_[number % begun_.size()] = {number, now_ns};
  if (is_captured) captured_ = number;
  return number | (is_captured ? captured_call : 0);
}

void KernelStamps::start_copy() {
  const sys::cuda::Driver& driver = engine_.device().driver();
  const sys::cuda::Current current(engine_.device());
  is_copying_ = driver.copy_async(reinterpret_cast<sys::cuda::DeviceAddress>(copy_.data()),
                                  engine_.stamp_board_address(), sizeof(device::StampBoard),
                                  stream_) == sys::cuda::driver_success;
  has_failed_ = !is_copying_;
}

bool KernelStamps::take_copy(std::int64_t now_ns) {
  if (!is_copying_) return true;
  const sys::cuda::Current current(engine_.device());
  const sys::cuda::DriverResult result = engine_.device().driver().stream_query(stream_);
  if (result == sys::cuda::driver_not_ready) return false;
  is_copying_ = false;
  has_failed_ = result != sys::cuda::driver_success;
  if (has_failed_) return true;
  const auto seen =
      engine::gpu::read_stamps(*reinterpret_cast<const device::StampBoard*>(copy_.data()), next_);
  // After the copy: a kernel that gave up, and those after it, stamp what did not happen.
  if (engine_.has_given_up()) return true;
  const std::lock_guard lock(mutex_);
  for (const engine::gpu::SeenLaunch& launch : seen) {
    if (launch.end_time != 0) next_ = launch.number + 1;
    take(launch, now_ns);
  }
  if (!seen.empty()) clock_error_ns_ = std::max<std::int64_t>(clock_.error_ns(now_ns), 1);
  return true;
}

// A kernel begins after the host has begun its launch or, of a replay, its capture.
void KernelStamps::take(const engine::gpu::SeenLaunch& seen, std::int64_t now_ns) {
  Stamped stamped{.number = seen.number + 1, .call = seen.call};
  stamped.begin_ns = clock_.unwrap(seen.begin_time & device_time_mask);
  clock_.came_after(stamped.begin_ns, begun_ns(seen.call));
  clock_.came_before(stamped.begin_ns, now_ns);
  if (seen.end_time != 0) {
    stamped.end_ns = clock_.unwrap(seen.end_time & device_time_mask);
    clock_.came_before(stamped.end_ns, now_ns);
  }
  const bool is_captured = (seen.call & captured_call) != 0;
  const std::uint64_t number = seen.call & number_mask;
  Stamped* before = nullptr;
  if (!is_captured) {
    before = &calls_[number % calls_.size()];
    if (before->number == 0 || (before->call & number_mask) != number) *before = stamped;
  } else {
    const bool goes_on =
        !replays_.empty() && (replays_.back().call & number_mask) == number &&
        (replays_.back().number == stamped.number ||
         (replays_.back().number + 1 == stamped.number && replays_.back().end_ns == 0));
    // The end of the one before is lost: it was overwritten.
    if (!goes_on && !replays_.empty() && replays_.back().end_ns == 0) replays_.pop_back();
    if (!goes_on) replays_.push_back(stamped);
    if (replays_.size() > most_launches) replays_.pop_front();
    before = &replays_.back();
  }
  // Of several kernels of a call, the first one's begin and the last one's end.
  before->number = stamped.number;
  before->call = stamped.call;
  before->end_ns = (seen.call & device::stamp_goes_on) != 0 ? 0 : stamped.end_ns;
}

std::int64_t KernelStamps::begun_ns(std::uint64_t call) const {
  const std::uint64_t number = call & number_mask;
  const Begun& begun = (call & captured_call) != 0 ? captures_[number % captures_.size()]
                                                   : begun_[number % begun_.size()];
  return begun.number == number ? begun.host_ns : made_ns_;
}

void KernelStamps::look(std::int64_t now_ns) {
  const std::unique_lock lock(copy_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || has_failed_) return;
  if (take_copy(now_ns) && !has_failed_) start_copy();
}

void KernelStamps::refresh(std::int64_t patience_ns) {
  const std::int64_t until_ns = steady_now_ns() + patience_ns;
  const std::unique_lock lock(copy_mutex_, std::chrono::nanoseconds(patience_ns));
  if (!lock.owns_lock() || has_failed_) return;
  // The copy that is under way may be older than what the caller asks for.
  for (int copies = 0; copies < 2 && !has_failed_; ++copies) {
    while (!take_copy(steady_now_ns())) {
      if (steady_now_ns() >= until_ns) return;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    if (copies == 0 && !has_failed_) start_copy();
  }
}

void KernelStamps::complete(std::vector<trace::Entry>& entries) const {
  using trace::State;
  for (trace::Entry& entry : entries) {
    if (entry.launch == 0 || entry.is_captured) continue;
    const Stamped& stamped = calls_[entry.launch % calls_.size()];
    if (stamped.number == 0 || (stamped.call & number_mask) != entry.launch) continue;
    // The difference of the clocks is not known so well that a kernel could not seem to begin too
    // early.
    entry.started_ns = std::max(on_host(stamped.begin_ns), entry.scheduled_ns);
    if (stamped.end_ns != 0) {
      entry.state = State::ended;
      entry.ended_ns = std::max(on_host(stamped.end_ns), entry.started_ns);
    } else if (entry.state == State::scheduled) {
      entry.state = State::started;
    } else {
      entry.started_ns = std::min(entry.started_ns, entry.ended_ns);
    }
  }
}

// A captured call's entry was written after its launch began and before that of the next one.
std::optional<std::uint64_t> KernelStamps::sequence_of(
    std::uint64_t capture, const std::vector<trace::Entry>& entries) const {
  const auto begun = [&](std::uint64_t number) -> std::int64_t {
    const Begun& known = captures_[number % captures_.size()];
    return known.number == number ? known.host_ns : INT64_MAX;
  };
  for (const trace::Entry& entry : entries)
    if (entry.is_captured && entry.launched_ns >= begun(capture) &&
        (capture == captured_ || entry.launched_ns < begun(capture + 1)))
      return entry.sequence;
  return std::nullopt;
}

void KernelStamps::complete(trace::Record& record) const {
  const std::lock_guard lock(mutex_);
  if (clock_error_ns_ == 0) return;
  record.device_clock_error_ns = clock_error_ns_;
  complete(record.collectives);
  complete(record.messages);
  for (const Stamped& stamped : replays_) {
    trace::Replay& replay = record.replays.emplace_back();
    replay.launch = stamped.number;
    replay.capture = stamped.call & number_mask;
    replay.sequence = sequence_of(replay.capture, record.collectives);
    replay.started_ns = on_host(stamped.begin_ns);
    if (stamped.end_ns != 0) {
      replay.state = trace::State::ended;
      replay.ended_ns = std::max(on_host(stamped.end_ns), replay.started_ns);
    } else if (record.failure) {
      replay.state = record.failure->error.aborted ? trace::State::aborted : trace::State::failed;
      replay.ended_ns = std::max(record.failure->time_ns, replay.started_ns);
    }
  }
}

}  // namespace unisono::comm
