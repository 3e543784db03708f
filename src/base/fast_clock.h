// The steady clock, read in a few nanoseconds: between readings of the clock itself, the
// processor's own counter tells how much time has gone.
#pragma once

#include <cstdint>

namespace unisono {

// Nanoseconds of the steady clock.
std::int64_t steady_now_ns();

// Within some tens of nanoseconds of steady_now_ns(), and never behind its own last answer. For one
// thread at a time. Where the processor has no counter of constant rate, it is the clock itself.
class FastClock {
 public:
  FastClock();

  std::int64_t now_ns() {
    const std::uint64_t since = ticks() - anchor_ticks_;
    if (since >= window_ticks_) [[unlikely]]
      return read_clock();
    const std::int64_t now = anchor_ns_ + static_cast<std::int64_t>(since * scale_ >> scale_bits);
    last_ns_ = now > last_ns_ ? now : last_ns_;
    return last_ns_;
  }

 private:
  // Nanoseconds of a tick, as a fraction of 2^32: the product above stays below 2^64 for a window
  // of some seconds.
  static constexpr int scale_bits = 32;

  static std::uint64_t ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    std::uint64_t value;
    asm volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    return 0;
#endif
  }
  // Reads the clock, learns the counter's rate, and starts a new window.
  std::int64_t read_clock();

  std::uint64_t anchor_ticks_ = 0;
  std::int64_t anchor_ns_ = 0;
  std::int64_t last_ns_ = 0;
  std::uint64_t window_ticks_ = 0;  // 0: the rate is not known yet
  std::uint64_t scale_ = 0;
  bool has_constant_rate_;
};

}  // namespace unisono
