#include "comm/run/interrupt.h"

#include <atomic>
#include <chrono>

namespace unisono {
namespace {

// Release when it is set, acquire when it is called: what it needs was made before.
std::atomic<bool (*)()> process_check{nullptr};

constexpr std::int64_t interval_ns = 50'000'000;
// Looking at the clock costs some 25 ns. A poll takes 50 ns to 500 us (the longest sleep of a
// Backoff), so the first look comes after 32 ms at most.
constexpr std::int64_t polls_between_looks = 64;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void set_interrupt_check(bool (*check)()) { process_check.store(check, std::memory_order_release); }

namespace comm {

bool InterruptWatch::interrupted() {
  if (process_check.load(std::memory_order_relaxed) == nullptr) return false;
  if (++polls_ % polls_between_looks != 0) return false;
  const std::int64_t now = now_ns();
  if (now < next_ns_) return false;
  next_ns_ = now + interval_ns;
  const auto check = process_check.load(std::memory_order_acquire);
  return check != nullptr && check();
}

}  // namespace comm
}  // namespace unisono
