#include "comm/device/device_launches.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "engine/gpu/ll128_all_pairs.h"

namespace unisono::comm {

Result<std::unique_ptr<DeviceLaunches>> DeviceLaunches::make(engine::gpu::Engine& engine,
                                                             Mappings& mappings,
                                                             sys::World& world) {
  std::unique_ptr<DeviceLaunches> made(new DeviceLaunches(engine, mappings, world));
  const sys::cuda::Device& device = engine.device();
  const sys::cuda::Current current(device);
  const auto make_event = [&](sys::cuda::EventHandle*& event) {
    return device.check(device.driver().event_create(&event, sys::cuda::event_without_timing),
                        "making an event");
  };
  UNISONO_TRY(make_event(made->launched_.captured));
  for (sys::cuda::EventHandle*& event : made->events_) UNISONO_TRY(make_event(event));
  made->launched_.last = made->events_[0];
  if (engine.stamp_board_address() != 0) {
    UNISONO_ASSIGN(made->stamps_, KernelStamps::make(engine, world.now_ns()));
  }
  return made;
}

DeviceLaunches::~DeviceLaunches() {
  if (order_) order_->remove(launched_);
  const sys::cuda::Current current(device());
  if (launched_.captured != nullptr) device().driver().event_destroy(launched_.captured);
  for (sys::cuda::EventHandle* event : events_)
    if (event != nullptr) device().driver().event_destroy(event);
}

void DeviceLaunches::begin(std::shared_ptr<LaunchOrder> order, RingLinks* rings) {
  order_ = std::move(order);
  order_->add(launched_);
  rings_ = rings;
}

Result<engine::gpu::OpenLaunch> DeviceLaunches::open(sys::cuda::StreamHandle* stream) {
  engine::gpu::OpenLaunch opened(*this);
  order_lock_ = order_->lock();
  current_.emplace(device());
  stream_ = stream;
  UNISONO_TRY(look_at(stream));
  return opened;
}

// A call that is captured is ordered by its graph, and leaves the event of the others as it is.
Status DeviceLaunches::look_at(sys::cuda::StreamHandle* stream) {
  const sys::cuda::Driver& driver = device().driver();
  int capturing = 0;
  capture_ = 0;
  blocks_ = 0;
  UNISONO_TRY(
      device().check(driver.capture_info(stream, &capturing, &capture_, nullptr, nullptr, nullptr),
                     "looking at a stream"));
  if (capturing == 0) capture_ = 0;
  last_launch_.fallback = trace::Fallback::none;
  if (capture_ != 0) last_launch_.capture = ++captured_launches_;
  if (stamps_) {
    const std::uint64_t number = capture_ != 0 ? captured_launches_ : last_launch_.number + 1;
    stamp_ = {engine_.stamp_board_address(),
              stamps_->begin_launch(number, capture_ != 0, world_.now_ns())};
  }
  if (capture_ != 0 || stream == last_stream_ || !has_launched_.load(std::memory_order_relaxed))
    return {};
  return device().check(driver.stream_wait_event(stream, launched_.last, 0),
                        "ordering a call after the one before");
}

Status DeviceLaunches::make_room(int blocks) {
  blocks_ = blocks;
  return order_->follow_others(device(), launched_, blocks, capture_, stream_);
}

Status DeviceLaunches::finish() {
  order_->count(device(), launched_, blocks_, capture_);
  if (rings_ != nullptr) rings_->begin_launch(capture_ != 0);
  last_launch_.is_captured = capture_ != 0;
  sys::cuda::EventHandle* const event = last_launch_.is_captured
                                            ? launched_.captured
                                            : events_[(last_launch_.number + 1) % most_events];
  UNISONO_TRY(device().check(device().driver().event_record(event, stream_), "recording an event"));
  if (last_launch_.is_captured) {
    is_in_graphs_ = true;
    return {};
  }
  ++last_launch_.number;
  launched_.last.store(event, std::memory_order_relaxed);
  last_stream_ = stream_;
  has_launched_.store(true, std::memory_order_relaxed);
  order_lock_.unlock();
  mappings_.exchange_news();
  return {};
}

void DeviceLaunches::close() {
  current_.reset();
  capture_ = 0;
  if (order_lock_.owns_lock()) order_lock_.unlock();
}

bool DeviceLaunches::is_busy() const {
  const sys::cuda::Current current(device());
  const sys::cuda::DriverResult result = device().driver().event_query(launched_.last);
  if (result == sys::cuda::driver_not_ready) return true;
  // What a context was to do is over when it has failed or is gone.
  return result == sys::cuda::driver_success && engine_.copy_links().is_waiting();
}

// Calls of a communicator follow each other: the launches that are over are the first ones. One
// whose event serves a later launch is over once a launch after it is. Few questions, because the
// driver answers them under a lock that launches need.
std::uint64_t DeviceLaunches::ended() {
  collect_fallbacks();
  const std::uint64_t last = last_launch_.number;
  if (ended_ == last) return last;
  const sys::cuda::Current current(device());
  const auto is_over = [&](std::uint64_t number) {
    return device().driver().event_query(events_[number % most_events]) ==
           sys::cuda::driver_success;
  };
  if (is_over(last)) {
    if (rings_ != nullptr) rings_->end_launches();
    return ended_ = last;
  }
  std::uint64_t open = last;
  std::uint64_t before = std::max(ended_, last - std::min<std::uint64_t>(last, most_events));
  while (before + 1 < open) {
    const std::uint64_t middle = std::midpoint(before, open);
    if (is_over(middle))
      ended_ = before = middle;
    else
      open = middle;
  }
  return ended_;
}

void DeviceLaunches::collect_fallbacks() const {
  std::vector<std::uint64_t> told = engine_.fallbacks();
  const std::lock_guard lock(fallbacks_mutex_);
  // As a rule nothing is new.
  if (told == told_fallbacks_) return;
  fallbacks_.insert(told.begin(), told.end());
  told_fallbacks_ = std::move(told);
  while (fallbacks_.size() > most_fallbacks) fallbacks_.erase(fallbacks_.begin());
}

void DeviceLaunches::complete_fallbacks(std::vector<trace::Entry>& entries) const {
  collect_fallbacks();
  const std::lock_guard lock(fallbacks_mutex_);
  if (fallbacks_.empty()) return;
  for (trace::Entry& entry : entries) {
    const std::uint64_t launch = entry.is_captured ? entry.capture : entry.launch;
    if (launch == 0 || entry.fallback != trace::Fallback::none ||
        !fallbacks_.contains(key_of(launch, entry.is_captured)))
      continue;
    entry.fallback = trace::Fallback::peer;
    entry.chosen = entry.path.variant;
    entry.path = engine::gpu::ll128_fallback(entry.path.thread_blocks);
  }
}

// Kernels end by their deadlines at the latest; one that fails in another way ends, too.
void DeviceLaunches::wait() {
  while (is_busy()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  // Nothing else tells of replays.
  if (!is_in_graphs_) return;
  const sys::cuda::Current current(device());
  device().driver().context_synchronize();
}

Status DeviceLaunches::check_device() const {
  if (!has_launched_.load(std::memory_order_relaxed)) return {};
  const sys::cuda::Current current(device());
  const sys::cuda::DriverResult result = device().driver().event_query(launched_.last);
  const bool is_gone =
      result == sys::cuda::driver_context_is_destroyed || result == sys::cuda::driver_deinitialized;
  if (result == sys::cuda::driver_not_ready || is_gone) return {};
  return device().check(result, "asking whether a call is over");
}

}  // namespace unisono::comm
