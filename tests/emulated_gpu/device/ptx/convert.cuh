// In the place of src/device/ptx/convert.cuh, on a host: what the conversions are, by arithmetic;
// and the clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>

namespace unisono::device::ptx {

inline std::int64_t global_time_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

inline float float_of_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int mantissa = bits & 0x3ff;
  float value = std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0)
    value = std::ldexp(static_cast<float>(mantissa), -24);
  else if (exponent < 31)
    value = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  else if (mantissa == 0)
    value = std::numeric_limits<float>::infinity();
  return (bits & 0x8000) != 0 ? -value : value;
}

// A NaN's bits are not to be relied on.
inline std::uint16_t half_of_float(float value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7fff;
  const double magnitude = std::fabs(static_cast<double>(value));
  // Half of a last place above the largest.
  if (magnitude >= 65'520) return static_cast<std::uint16_t>(sign | 0x7c00);
  const int exponent = magnitude == 0 ? -14 : std::max(std::ilogb(magnitude), -14);
  // In last places, whose carry goes into the exponent.
  const auto places = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | ((exponent + 14) * 1024 + places));
}

// Likewise.
inline std::uint16_t bfloat16_of_float(float value) {
  if (std::isnan(value)) return 0x7fff;
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace unisono::device::ptx
