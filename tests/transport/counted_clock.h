// A steady clock that counts what is done and does not measure how fast: deadlines and pauses under
// it, and races against them, do not depend on the machine.
#pragma once

#include <chrono>

namespace unisono::test {

// As long as one lives, each look at the steady clock takes a microsecond, and nothing else takes
// any time. Transports made under it must not outlive it, for the system's clock goes on then.
class CountedClock {
 public:
  CountedClock();
  ~CountedClock();
  CountedClock(const CountedClock&) = delete;
  CountedClock& operator=(const CountedClock&) = delete;

  static void advance(std::chrono::nanoseconds time);
};

}  // namespace unisono::test
