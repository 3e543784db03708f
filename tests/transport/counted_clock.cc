#include "transport/counted_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace {

constexpr std::int64_t system_runs = -1;

// Relaxed: a time orders nothing else.
std::atomic<std::int64_t> counted_ns{system_runs};

}  // namespace

// In the C library's place: std::chrono::steady_clock reads the time here.
extern "C" int clock_gettime(clockid_t clock, timespec* out) noexcept {
  constexpr std::int64_t second_ns = 1'000'000'000;
  constexpr std::int64_t look_ns = 1000;
  if (clock != CLOCK_MONOTONIC || counted_ns.load(std::memory_order_relaxed) == system_runs)
    return static_cast<int>(syscall(SYS_clock_gettime, clock, out));
  const std::int64_t now = counted_ns.fetch_add(look_ns, std::memory_order_relaxed);
  *out = {.tv_sec = now / second_ns, .tv_nsec = now % second_ns};
  return 0;
}

namespace unisono::test {

CountedClock::CountedClock() {
  counted_ns.store(
      std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1),
      std::memory_order_relaxed);
}

CountedClock::~CountedClock() { counted_ns.store(system_runs, std::memory_order_relaxed); }

void CountedClock::advance(std::chrono::nanoseconds time) {
  counted_ns.fetch_add(time.count(), std::memory_order_relaxed);
}

}  // namespace unisono::test
