// The clock of the data path: deadlines and delays.
#pragma once

#include <chrono>
#include <cstdint>

namespace unisono::transport {

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline constexpr std::int64_t ns_per_ms = 1'000'000;
inline constexpr std::int64_t ns_per_s = 1'000'000'000;

}  // namespace unisono::transport
