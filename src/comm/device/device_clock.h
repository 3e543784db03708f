// The device's clock on the host's, without a launch to compare them: a launch begins after the
// host has made it, and has ended when the host sees so. Each such fact bounds the difference of
// the clocks from one side; bounds grow stale as the clocks drift.
#pragma once

#include <cstdint>

namespace unisono::comm {

class DeviceClock {
 public:
  // A time of the device, given modulo 2^48 ns, some 78 hours, that lies within half of that of the
  // one before. The others take these.
  std::int64_t unwrap(std::uint64_t device_time);
  // What the device did at that time came after the host's `host_ns`, or before it.
  void came_after(std::int64_t device_ns, std::int64_t host_ns);
  void came_before(std::int64_t device_ns, std::int64_t host_ns);

  // Host time minus device time, in the middle between the bounds, once there are both.
  std::int64_t offset_ns() const { return least_.ns + (most_.ns - least_.ns) / 2; }
  // By how much that may be wrong, at this time of the host.
  std::int64_t error_ns(std::int64_t host_ns) const;

 private:
  // A bound of host time minus device time, from when it was found.
  struct Bound {
    std::int64_t ns = 0;
    std::int64_t host_ns = 0;
  };
  static std::int64_t drift_ns(std::int64_t elapsed_ns);

  Bound least_;
  Bound most_;
  bool has_least_ = false;
  bool has_most_ = false;
  bool has_device_time_ = false;
  std::int64_t device_ns_ = 0;  // the last one
};

}  // namespace unisono::comm
