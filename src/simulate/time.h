// Simulated time: whole picoseconds, so that 0.04 ns a byte is exact and sums do not depend on the
// order of adding. 64 bits hold 106 days.
#pragma once

#include <cmath>
#include <cstdint>

namespace unisono::simulate {

using Time = std::int64_t;

inline constexpr Time picoseconds_per_ns = 1000;
// Durations beyond this are refused where they come in, so that sums of them do not overflow.
inline constexpr double max_duration_ns = 1e14;  // 27 hours

inline Time from_ns(double ns) { return std::llround(ns * picoseconds_per_ns); }
inline double to_ns(Time time) { return static_cast<double>(time) / picoseconds_per_ns; }
inline double to_us(Time time) { return to_ns(time) / 1000; }

// How long `bytes` take at `ps_per_byte`.
inline Time transfer_time(double ps_per_byte, std::int64_t bytes) {
  return std::llround(ps_per_byte * static_cast<double>(bytes));
}

}  // namespace unisono::simulate
