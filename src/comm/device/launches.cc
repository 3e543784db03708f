// How calls of connections between devices are put on streams, one after another, and whether they
// are over.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "comm/device/connections.h"
#include "engine/gpu/ll128_all_pairs.h"

namespace unisono::comm {

// A call that is captured is ordered by its graph, and leaves the event of the others as it is.
Status DeviceConnections::before_launch(sys::cuda::StreamHandle* stream) {
  order_lock_ = order_->lock();
  current_.emplace(device());
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
    stamp_ = {engine_->stamp_board_address(),
              stamps_->begin_launch(number, capture_ != 0, job_->sys_world().now_ns())};
  }
  if (capture_ != 0 || stream == last_stream_ || !has_launched_.load(std::memory_order_relaxed))
    return {};
  return device().check(driver.stream_wait_event(stream, launched_.last, 0),
                        "ordering a call after the one before");
}

Status DeviceConnections::make_room(sys::cuda::StreamHandle* stream, int blocks) {
  blocks_ = blocks;
  return order_->follow_others(device(), launched_, blocks, capture_, stream);
}

Status DeviceConnections::after_launch(sys::cuda::StreamHandle* stream) {
  order_->count(device(), launched_, blocks_, capture_);
  last_launch_.is_captured = capture_ != 0;
  sys::cuda::EventHandle* const event = last_launch_.is_captured
                                            ? launched_.captured
                                            : events_[(last_launch_.number + 1) % most_events];
  UNISONO_TRY(device().check(device().driver().event_record(event, stream), "recording an event"));
  if (!last_launch_.is_captured) {
    ++last_launch_.number;
    launched_.last.store(event, std::memory_order_relaxed);
  }
  if (capture_ != 0) {
    is_in_graphs_ = true;
    return {};
  }
  last_stream_ = stream;
  has_launched_.store(true, std::memory_order_relaxed);
  order_lock_.unlock();
  share_new_memory();
  return {};
}

void DeviceConnections::end_launch() {
  current_.reset();
  capture_ = 0;
  if (order_lock_.owns_lock()) order_lock_.unlock();
}

bool DeviceConnections::is_busy() const {
  const sys::cuda::Current current(device());
  const sys::cuda::DriverResult result = device().driver().event_query(launched_.last);
  if (result == sys::cuda::driver_not_ready) return true;
  // What a context was to do is over when it has failed or is gone.
  return result == sys::cuda::driver_success && engine_->copy_links().is_waiting();
}

// Calls of a communicator follow each other: the launches that are over are the first ones. One
// whose event serves a later launch is over once a launch after it is. Few questions, because the
// driver answers them under a lock that launches need.
std::uint64_t DeviceConnections::ended_launches() {
  collect_fallbacks();
  const std::uint64_t last = last_launch_.number;
  if (ended_launches_ == last) return last;
  const sys::cuda::Current current(device());
  const auto is_over = [&](std::uint64_t number) {
    return device().driver().event_query(events_[number % most_events]) ==
           sys::cuda::driver_success;
  };
  if (is_over(last)) return ended_launches_ = last;
  std::uint64_t open = last;
  std::uint64_t before =
      std::max(ended_launches_, last - std::min<std::uint64_t>(last, most_events));
  while (before + 1 < open) {
    const std::uint64_t middle = std::midpoint(before, open);
    if (is_over(middle))
      ended_launches_ = before = middle;
    else
      open = middle;
  }
  return ended_launches_;
}

void DeviceConnections::collect_fallbacks() const {
  std::vector<std::uint64_t> told = engine_->fallbacks();
  const std::lock_guard lock(fallbacks_mutex_);
  // As a rule nothing is new.
  if (told == told_fallbacks_) return;
  fallbacks_.insert(told.begin(), told.end());
  told_fallbacks_ = std::move(told);
  while (fallbacks_.size() > most_fallbacks) fallbacks_.erase(fallbacks_.begin());
}

void DeviceConnections::complete_fallbacks(std::vector<trace::Entry>& entries) const {
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

Status DeviceConnections::check_device() const {
  if (!has_launched_.load(std::memory_order_relaxed)) return {};
  const sys::cuda::Current current(device());
  const sys::cuda::DriverResult result = device().driver().event_query(launched_.last);
  const bool is_gone =
      result == sys::cuda::driver_context_is_destroyed || result == sys::cuda::driver_deinitialized;
  if (result == sys::cuda::driver_not_ready || is_gone) return {};
  return device().check(result, "asking whether a call is over");
}

}  // namespace unisono::comm
