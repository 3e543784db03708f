#include "comm/device/device_clock.h"

#include <algorithm>
#include <cstdlib>

namespace unisono::comm {
namespace {

constexpr int time_bits = 48;
// Of quartz against quartz, with a clock that is being set gently: 100 us a second.
constexpr std::int64_t drift_divisor = 10'000;

}  // namespace

std::int64_t DeviceClock::drift_ns(std::int64_t elapsed_ns) {
  return std::abs(elapsed_ns) / drift_divisor;
}

std::int64_t DeviceClock::unwrap(std::uint64_t device_time) {
  constexpr int spare = 64 - time_bits;
  if (!has_device_time_) device_ns_ = static_cast<std::int64_t>(device_time);
  has_device_time_ = true;
  // The shortest way from the last one, with its sign.
  const std::uint64_t step = (device_time - static_cast<std::uint64_t>(device_ns_)) << spare;
  device_ns_ += static_cast<std::int64_t>(step) >> spare;
  return device_ns_;
}

void DeviceClock::came_after(std::int64_t device_ns, std::int64_t host_ns) {
  const std::int64_t least = host_ns - device_ns;
  const std::int64_t known = least_.ns - drift_ns(host_ns - least_.host_ns);
  if (has_least_ && least <= known) return;
  least_ = {.ns = least, .host_ns = host_ns};
  has_least_ = true;
}

void DeviceClock::came_before(std::int64_t device_ns, std::int64_t host_ns) {
  const std::int64_t most = host_ns - device_ns;
  const std::int64_t known = most_.ns + drift_ns(host_ns - most_.host_ns);
  if (has_most_ && most >= known) return;
  most_ = {.ns = most, .host_ns = host_ns};
  has_most_ = true;
}

std::int64_t DeviceClock::error_ns(std::int64_t host_ns) const {
  const std::int64_t least = least_.ns - drift_ns(host_ns - least_.host_ns);
  const std::int64_t most = most_.ns + drift_ns(host_ns - most_.host_ns);
  return std::max<std::int64_t>((most - least + 1) / 2, 0);
}

}  // namespace unisono::comm
