#include "device.h"

#include <thread>

namespace unisono::pytorch {
namespace {

// A look at an event takes the driver's lock, which threads that launch kernels need, too.
constexpr std::chrono::microseconds shortest_sleep(5);
constexpr std::chrono::microseconds longest_sleep(200);

}  // namespace

Device::Device(c10::Device device)
    : guard_(device.type()),
      own_(guard_.getStreamFromGlobalPool(device.has_index() ? device : guard_.getDevice())),
      begin_(device.type()) {}

c10::Stream Device::own_after_current() {
  const std::lock_guard lock(mutex_);
  begin_.record(current());
  begin_.block(own_);
  return own_;
}

bool Device::wait_for_streams(Deadline deadline) const {
  for (const c10::Stream& stream : {current(), own_}) {
    c10::Event reached(stream.device_type());
    reached.record(stream);
    if (!wait_for_event(reached, deadline)) return false;
  }
  return true;
}

bool wait_for_event(const c10::Event& event, Deadline deadline) {
  auto sleep = shortest_sleep;
  while (!event.query()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, longest_sleep);
  }
  return true;
}

Deadline deadline_after(std::chrono::nanoseconds patience) {
  const auto now = std::chrono::steady_clock::now();
  return patience < Deadline::max() - now ? now + patience : Deadline::max();
}

}  // namespace unisono::pytorch
