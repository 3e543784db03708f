// Kernels of several communicators on one device. Each waits for its peers' and keeps its
// SMs meanwhile: where two do not fit at the same time, one rank's device may have
// taken up the first alone and another's the second alone, and both wait for ever. So a kernel that
// might not fit waits on its stream for those of the others that were launched before it. Where all
// ranks call in one order, the first of these waits for none.
//
// In a graph that is captured the same holds among its own calls.
#pragma once

#include <unisono/result.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sys/cuda/device.h"

namespace unisono::comm {

class LaunchOrder {
 public:
  // What a communicator has on the device: guarded by the order's lock.
  struct Launched {
    // Recorded after each call, another one each time. Relaxed: an event is made before any call.
    std::atomic<sys::cuda::EventHandle*> last{nullptr};
    int blocks = 0;  // thread blocks that may not be over; 0 before the first call
    // The same for the calls of a capture. 0: there was none.
    sys::cuda::EventHandle* captured = nullptr;
    unsigned long long capture = 0;
    int captured_blocks = 0;
  };

  // That of a device, for those communicators' ranks of which as many share it.
  static std::shared_ptr<LaunchOrder> of(int ordinal, int index_on_device);

  void add(Launched& launched);
  void remove(Launched& launched);
  // Held from before a launch until its event is recorded.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  // With the lock: has the stream wait for the others, where `blocks` of `own` might not be on the
  // device at the same time; `capture` is that of the stream, 0 if it is not captured.
  Status follow_others(const sys::cuda::Device& device, const Launched& own, int blocks,
                       unsigned long long capture, sys::cuda::StreamHandle* stream) const;
  // With the lock, before the event is recorded: what the call adds.
  void count(const sys::cuda::Device& device, Launched& own, int blocks,
             unsigned long long capture) const;

 private:
  std::mutex mutex_;
  std::vector<Launched*> members_;
};

}  // namespace unisono::comm
