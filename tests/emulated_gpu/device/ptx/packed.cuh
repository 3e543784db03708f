// In the place of src/device/ptx/packed.cuh, on a host: both numbers of a word, one by one.
#pragma once

#include <cmath>
#include <cstdint>

#include "device/ptx/convert.cuh"

namespace unisono::device::ptx {

inline constexpr bool adds_bfloat16s = true;

inline float float_of_bfloat16(std::uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}
inline std::uint16_t canonical_half_of(float value) {
  return std::isnan(value) ? std::uint16_t{0x7e00} : half_of_float(value);
}
inline std::uint16_t canonical_bfloat16_of(float value) {
  return std::isnan(value) ? std::uint16_t{0x7fc0} : bfloat16_of_float(value);
}

template <class Function>
std::uint32_t for_both(std::uint32_t a, std::uint32_t b, Function function) {
  const auto low = function(static_cast<std::uint16_t>(a), static_cast<std::uint16_t>(b));
  const auto high =
      function(static_cast<std::uint16_t>(a >> 16), static_cast<std::uint16_t>(b >> 16));
  return low | static_cast<std::uint32_t>(high) << 16;
}

inline std::uint32_t add_halves(std::uint32_t a, std::uint32_t b) {
  return for_both(a, b, [](std::uint16_t x, std::uint16_t y) {
    return canonical_half_of(float_of_half(x) + float_of_half(y));
  });
}
inline std::uint32_t multiply_halves(std::uint32_t a, std::uint32_t b) {
  return for_both(a, b, [](std::uint16_t x, std::uint16_t y) {
    return canonical_half_of(float_of_half(x) * float_of_half(y));
  });
}
inline std::uint32_t add_bfloat16s(std::uint32_t a, std::uint32_t b) {
  return for_both(a, b, [](std::uint16_t x, std::uint16_t y) {
    return canonical_bfloat16_of(float_of_bfloat16(x) + float_of_bfloat16(y));
  });
}
inline std::uint32_t multiply_bfloat16s(std::uint32_t a, std::uint32_t b) {
  return for_both(a, b, [](std::uint16_t x, std::uint16_t y) {
    return canonical_bfloat16_of(float_of_bfloat16(x) * float_of_bfloat16(y));
  });
}

}  // namespace unisono::device::ptx
