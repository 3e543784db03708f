// Element types as the kernels see them: what is stored, what it is computed in, and the way between.
// All is branch-free integer and float32 arithmetic, so that loops over it become vector code.
//
// Only the kernels_*.cc files include this. Everything is in an unnamed namespace on purpose: each of
// them compiles it for another instruction set, and the linker must not merge the copies.
#pragma once

#include <cstdint>

namespace unisono::engine {
namespace {

inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
// 2^exponent, for normal numbers.
constexpr std::uint32_t power_bits(int exponent) {
  return static_cast<std::uint32_t>(exponent + 127) << 23;
}

inline constexpr std::uint32_t float32_sign = 0x80000000U;
inline constexpr std::uint32_t float32_nan = 0x7fc00000U;

// Stored as computed: integers, and any type whose operation works on its bits.
template <class T>
struct Raw {
  using Storage = T;
  static T decode(T stored) { return stored; }
  static T encode(T value) { return value; }
};

struct Float32 {
  using Storage = float;
  static float decode(float stored) { return stored; }
  static float encode(float value) { return value == value ? value : __builtin_nanf(""); }
};

struct Float64 {
  using Storage = double;
  static double decode(double stored) { return stored; }
  static double encode(double value) { return value == value ? value : __builtin_nan(""); }
};

struct BFloat16 {
  using Storage = std::uint16_t;
  using Signed = std::int16_t;
  static constexpr Signed magnitude_mask = 0x7fff;
  static constexpr Signed largest_ordered = 0x7f80;  // infinity; what is above is NaN
  static constexpr Signed nan = 0x7fc0;

  static float decode(Storage stored) {
    return float_of(static_cast<std::uint32_t>(stored) << 16);
  }
  static Storage encode(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    return static_cast<Storage>(value == value ? rounded : static_cast<std::uint32_t>(nan));
  }
};

// IEEE-like formats of at most 16 bits whose numbers are all normal in float32.
template <class StorageType, class SignedType, int exponent_bits, int mantissa_bits,
          bool infinities, std::uint32_t clamp_bits, SignedType canonical_nan>
struct SmallFloat {
  using Storage = StorageType;
  using Signed = SignedType;
  static constexpr int width = 1 + exponent_bits + mantissa_bits;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int dropped_bits = 23 - mantissa_bits;
  static constexpr std::uint32_t smallest_normal = power_bits(1 - bias);
  static constexpr Signed magnitude_mask = (1 << (width - 1)) - 1;
  static constexpr Signed nan = canonical_nan;
  // Infinity, or without infinities the largest finite number; what is above is NaN.
  static constexpr Signed largest_ordered = static_cast<Signed>(
      infinities ? ((1 << exponent_bits) - 1) << mantissa_bits : magnitude_mask - 1);

  static float decode(Storage stored) {
    const std::uint32_t wide = stored;
    const std::uint32_t magnitude = (wide & static_cast<std::uint32_t>(magnitude_mask))
                                    << dropped_bits;
    // The exponent field moves from this bias to float32's: smallest_normal stands for field 1.
    constexpr std::uint32_t rebias = smallest_normal - (1U << 23);
    const std::uint32_t normal = magnitude + rebias;
    // A subnormal is read as 1.m * 2^(1 - bias); taking 2^(1 - bias) off leaves 0.m * 2^(1 - bias).
    const std::uint32_t subnormal =
        bits_of(float_of(magnitude + smallest_normal) - float_of(smallest_normal));
    std::uint32_t bits = magnitude < (1U << 23) ? subnormal : normal;
    if constexpr (infinities) {
      constexpr std::uint32_t infinity = static_cast<std::uint32_t>(largest_ordered)
                                         << dropped_bits;
      bits = magnitude >= infinity ? magnitude + (0x7f800000U - infinity) : bits;
    } else {
      constexpr std::uint32_t largest = static_cast<std::uint32_t>(largest_ordered)
                                        << dropped_bits;
      bits = magnitude > largest ? float32_nan : bits;
    }
    return float_of(bits | (wide & (1U << (width - 1))) << (32 - width));
  }

  static Storage encode(float value) {
    const std::uint32_t sign = bits_of(value) & float32_sign;
    const std::uint32_t unclamped = bits_of(value) ^ sign;
    const std::uint32_t magnitude = unclamped < clamp_bits ? unclamped : clamp_bits;
    // Adding a power of two whose unit in the last place is that of the result makes the float adder
    // round to nearest even there, and leaves the significand, implicit one included, in the low
    // bits. A subnormal's unit is that of the smallest normal number.
    const std::uint32_t own_exponent = magnitude & 0x7f800000U;
    const std::uint32_t exponent =
        own_exponent > smallest_normal ? own_exponent : smallest_normal;
    const std::uint32_t magic = exponent + (static_cast<std::uint32_t>(dropped_bits) << 23);
    const std::uint32_t significand = bits_of(float_of(magnitude) + float_of(magic)) - magic;
    // The implicit one carries into the exponent field, which therefore starts from field 1 as 0.
    const std::uint32_t rounded = significand + ((exponent - smallest_normal) >> dropped_bits);
    const std::uint32_t signed_bits = rounded | sign >> (32 - width);
    return static_cast<Storage>(
        value == value ? signed_bits : static_cast<std::uint32_t>(canonical_nan));
  }
};

// 2^16 rounds to float16's infinity, 448 and 57344 are the largest finite float8 numbers.
using Float16 = SmallFloat<std::uint16_t, std::int16_t, 5, 10, true, power_bits(16), 0x7e00>;
using Float8E4M3 =
    SmallFloat<std::uint8_t, std::int8_t, 4, 3, false, power_bits(8) | 0x600000U, 0x7f>;
using Float8E5M2 =
    SmallFloat<std::uint8_t, std::int8_t, 5, 2, true, power_bits(15) | 0x600000U, 0x7f>;

}  // namespace
}  // namespace unisono::engine
