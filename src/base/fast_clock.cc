#include "base/fast_clock.h"

#include <algorithm>
#include <chrono>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace unisono {
namespace {

// Two readings of the clock this far apart give the rate to some 50 ns in 1 ms.
constexpr std::int64_t shortest_measure_ns = 1'000'000;
// A window's error is that of the rate times its length: 50 ns in 10 ms of windows of 10 ms.
constexpr std::int64_t window_ns = 10'000'000;

bool counter_has_constant_rate() {
#if defined(__x86_64__)
  // A virtual machine takes microseconds to answer.
  static const bool is_invariant = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned power_management = 0x80000007, invariant = 1u << 8;
    return __get_cpuid(power_management, &a, &b, &c, &d) != 0 && (d & invariant) != 0;
  }();
  return is_invariant;
#elif defined(__aarch64__)
  return true;  // by the architecture
#else
  return false;
#endif
}

}  // namespace

std::int64_t steady_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

FastClock::FastClock() : has_constant_rate_(counter_has_constant_rate()) {}

std::int64_t FastClock::read_clock() {
  // Both at one time: of a few readings the one with the least between its ends, since a thread may
  // lose its processor in any of them.
  std::uint64_t now_ticks = 0, least = UINT64_MAX;
  std::int64_t now = 0;
  for (int reading = 0; reading < 3; ++reading) {
    const std::uint64_t before = ticks();
    const std::int64_t ns = steady_now_ns();
    const std::uint64_t between = ticks() - before;
    if (between >= least) continue;
    least = between;
    now_ticks = before + between / 2;
    now = ns;
  }
  last_ns_ = std::max(last_ns_, now);
  if (!has_constant_rate_) return last_ns_;
  const std::int64_t elapsed = now - anchor_ns_;
  if (anchor_ns_ != 0 && elapsed < shortest_measure_ns) return last_ns_;
  // Long pauses would overflow, and measure nothing better.
  constexpr std::int64_t longest_measure_ns = 1'000'000'000;
  if (anchor_ns_ != 0 && elapsed <= longest_measure_ns && now_ticks > anchor_ticks_) {
    const std::uint64_t ticks_gone = now_ticks - anchor_ticks_;
    scale_ = (static_cast<std::uint64_t>(elapsed) << scale_bits) / ticks_gone;
    window_ticks_ = ticks_gone * window_ns / static_cast<std::uint64_t>(elapsed);
  }
  anchor_ticks_ = now_ticks;
  anchor_ns_ = now;
  return last_ns_;
}

}  // namespace unisono
