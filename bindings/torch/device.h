// A rank's CUDA device and its streams, in PyTorch's own device-generic terms: one source serves
// PyTorch with CUDA and without, and nothing of CUDA is included.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <mutex>

namespace unisono::pytorch {

using Deadline = std::chrono::steady_clock::time_point;

class Device {
 public:
  // Takes a stream for the group from PyTorch's pool. Without an index: the current device.
  explicit Device(c10::Device device);

  c10::Device device() const { return own_.device(); }
  c10::Stream current() const { return guard_.getStream(device()); }
  // The group's stream, which waits for all work that is on the current one now. Any thread.
  c10::Stream own_after_current();
  // Has the host wait for what is on both now; false if there is no end of it before the deadline.
  bool wait_for_streams(Deadline deadline) const;

 private:
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream own_;
  std::mutex mutex_;  // between the recording of `begin_` and the stream's wait for it
  c10::Event begin_;
};

// Has the host wait for the event.
bool wait_for_event(const c10::Event& event, Deadline deadline);
Deadline deadline_after(std::chrono::nanoseconds patience);

}  // namespace unisono::pytorch
