#include "comm/device/launch_order.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/try.h"

namespace unisono::comm {

std::shared_ptr<LaunchOrder> LaunchOrder::of(int ordinal, int index_on_device) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, std::weak_ptr<LaunchOrder>> orders;
  const std::lock_guard lock(mutex);
  auto& known = orders[{ordinal, index_on_device}];
  auto order = known.lock();
  if (!order) known = order = std::make_shared<LaunchOrder>();
  return order;
}

void LaunchOrder::add(Launched& launched) {
  const std::lock_guard lock(mutex_);
  members_.push_back(&launched);
}

void LaunchOrder::remove(Launched& launched) {
  const std::lock_guard lock(mutex_);
  std::erase(members_, &launched);
}

Status LaunchOrder::follow_others(const sys::cuda::Device& device, const Launched& own, int blocks,
                                  unsigned long long capture,
                                  sys::cuda::StreamHandle* stream) const {
  if (blocks == 0 || members_.size() < 2) return {};
  // Every kernel's blocks fit on the device, one on an SM.
  const auto blocks_of = [&](const Launched& other) {
    if (&other == &own) return 0;
    if (capture == 0) return other.blocks;
    return other.capture == capture ? other.captured_blocks : 0;
  };
  int all = blocks;
  for (const Launched* other : members_) all += blocks_of(*other);
  if (all <= device.sms()) return {};
  const sys::cuda::Current current(device);
  for (const Launched* other : members_)
    if (blocks_of(*other) > 0)
      UNISONO_TRY(device.check(device.driver().stream_wait_event(
                                   stream, capture == 0 ? other->last.load() : other->captured, 0),
                               "ordering a call after another communicator's"));
  return {};
}

void LaunchOrder::count(const sys::cuda::Device& device, Launched& own, int blocks,
                        unsigned long long capture) const {
  if (capture != 0) {
    own.captured_blocks = own.capture == capture ? std::max(own.captured_blocks, blocks) : blocks;
    own.capture = capture;
    return;
  }
  // A larger kernel of before may still run.
  const bool may_run =
      blocks < own.blocks &&
      (members_.size() < 2 || device.driver().event_query(own.last) == sys::cuda::driver_not_ready);
  if (!may_run) own.blocks = blocks;
}

}  // namespace unisono::comm
