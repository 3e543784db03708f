#include "base/fast_clock.h"

#include <gtest/gtest.h>

namespace unisono {
namespace {

// Both sides of each reading are the clock itself; the slack is many times what a window's error
// may be.
TEST(FastClock, StaysWithTheSteadyClockAndNeverGoesBack) {
  constexpr std::int64_t slack_ns = 20'000, duration_ns = 60'000'000;
  FastClock clock;
  const std::int64_t begin = steady_now_ns();
  std::int64_t last = 0;
  for (std::int64_t before = begin; before < begin + duration_ns;) {
    before = steady_now_ns();
    const std::int64_t now = clock.now_ns();
    const std::int64_t after = steady_now_ns();
    ASSERT_GE(now, last);
    ASSERT_GE(now, before - slack_ns);
    ASSERT_LE(now, after + slack_ns);
    last = now;
  }
}

}  // namespace
}  // namespace unisono
