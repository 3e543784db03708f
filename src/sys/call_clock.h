// The clock of calls: the processor's counter where time is real, else the world's.
#pragma once

#include <cstdint>

#include "base/fast_clock.h"
#include "sys/world.h"

namespace unisono::sys {

// For one thread at a time.
class CallClock {
 public:
  explicit CallClock(const World& world) : simulated_(world.is_real() ? nullptr : &world) {}

  std::int64_t now_ns() { return simulated_ == nullptr ? counter_.now_ns() : simulated_->now_ns(); }

 private:
  const World* simulated_;
  FastClock counter_;
};

}  // namespace unisono::sys
