// The floats narrower than float32, a vector of elements at a time: how they become float32 and are
// rounded back. In explicit vectors, because the automatic vectoriser narrows every intermediate
// value separately and loses a factor of three to it. Only the kernels_*.cc files include this; see
// vectors.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/reduce/vectors.h"

namespace unisono::engine {
namespace {

// 2^exponent, for normal numbers.
constexpr std::int32_t power_bits(int exponent) { return (exponent + 127) << 23; }

inline constexpr std::int32_t float32_magnitude = 0x7fffffff;
inline constexpr std::int32_t float32_infinity = 0x7f800000;
inline constexpr std::int32_t float32_nan = 0x7fc00000;

// Any NaN becomes the one that narrows to the format's canonical NaN.
inline Floats canonical(Floats value) {
  return value == value ? value : floats_of(all(float32_nan));
}

struct BFloat16 {
  using Storage = std::uint16_t;
  using Signed = std::int16_t;
  static constexpr Signed magnitude_mask = 0x7fff;
  static constexpr Signed largest_ordered = 0x7f80;  // infinity; what is above is NaN
  static constexpr Signed nan = 0x7fc0;

  static Floats load(const Storage* source) { return floats_of(widen(source) << 16); }
  static void store(Floats value, Storage* destination) {
    const Ints bits = bits_of(canonical(value));
    const Ints rounded = bits + 0x7fff + ((bits >> 16) & 1);
    narrow((rounded >> 16) & 0xffff, destination);
  }
};

// IEEE-like formats of at most 16 bits whose numbers are all normal in float32. Values above
// clamp_bits are stored as clamp_bits is.
template <class StorageType, class SignedType, int exponent_bits, int mantissa_bits,
          bool infinities, std::int32_t clamp_bits, SignedType canonical_nan>
struct SmallFloat {
  using Storage = StorageType;
  using Signed = SignedType;
  static constexpr int width = 1 + exponent_bits + mantissa_bits;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int dropped_bits = 23 - mantissa_bits;
  static constexpr std::int32_t smallest_normal = power_bits(1 - bias);
  static constexpr Signed magnitude_mask = (1 << (width - 1)) - 1;
  static constexpr Signed nan = canonical_nan;
  // Infinity, or without infinities the largest finite number; what is above is NaN.
  static constexpr Signed largest_ordered = static_cast<Signed>(
      infinities ? ((1 << exponent_bits) - 1) << mantissa_bits : magnitude_mask - 1);
  static constexpr Signed largest_finite = infinities ? largest_ordered - 1 : largest_ordered;

  static Floats load(const Storage* source) {
    const Ints wide = widen(source);
    const Ints magnitude = (wide & magnitude_mask) << dropped_bits;
    // The exponent field moves from this bias to float32's: smallest_normal stands for field 1. A
    // subnormal is read as 1.m * 2^(1 - bias); taking 2^(1 - bias) off leaves 0.m * 2^(1 - bias).
    const Ints normal = magnitude + (smallest_normal - (1 << 23));
    const Ints subnormal =
        bits_of(floats_of(magnitude + smallest_normal) - floats_of(all(smallest_normal)));
    const Ints finite = magnitude < (1 << 23) ? subnormal : normal;
    constexpr std::int32_t largest = largest_ordered << dropped_bits;
    const Ints bits =
        infinities ? (magnitude >= largest ? magnitude + (float32_infinity - largest) : finite)
                   : (magnitude > largest ? all(float32_nan) : finite);
    return floats_of(bits | (wide >> (width - 1)) << 31);
  }

  static void store(Floats value, Storage* destination) {
    const Ints unclamped = bits_of(value) & float32_magnitude;
    const Ints magnitude = unclamped < clamp_bits ? unclamped : all(clamp_bits);
    // Adding a power of two whose unit in the last place is that of the result makes the float
    // adder round to nearest even there, and leaves the significand, implicit one included, in the
    // low bits. A subnormal's unit is that of the smallest normal number.
    const Ints own_exponent = magnitude & float32_infinity;
    const Ints exponent = own_exponent > smallest_normal ? own_exponent : all(smallest_normal);
    const Ints magic = exponent + (dropped_bits << 23);
    const Ints significand = bits_of(floats_of(magnitude) + floats_of(magic)) - magic;
    // The implicit one carries into the exponent field, which therefore starts from field 1 as 0.
    const Ints rounded = significand + ((exponent - smallest_normal) >> dropped_bits);
    const Ints sign = (bits_of(value) >> (32 - width)) & (1 << (width - 1));
    narrow(value == value ? rounded | sign : all(canonical_nan), destination);
  }
};

// 448 and 57344 are the largest finite float8 numbers.
using Float8E4M3 =
    SmallFloat<std::uint8_t, std::int8_t, 4, 3, false, power_bits(8) | 0x600000, 0x7f>;
using Float8E5M2 =
    SmallFloat<std::uint8_t, std::int8_t, 5, 2, true, power_bits(15) | 0x600000, 0x7f>;

// 2^16 rounds to infinity.
using PortableFloat16 =
    SmallFloat<std::uint16_t, std::int16_t, 5, 10, true, power_bits(16), 0x7e00>;

#if defined(__F16C__)
// By the processor's conversions: rounding is stated in the instruction, and denormal float16
// numbers convert exactly whatever the thread's flush modes are.
struct Float16 : PortableFloat16 {
#if defined(__AVX512F__)
  static Floats load(const Storage* source) {
    return _mm512_maskz_cvtph_ps(all_lanes,
                                 _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)));
  }
  static void store(Floats value, Storage* destination) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(destination),
                        _mm512_maskz_cvtps_ph(all_lanes, canonical(value),
                                              _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#else
  static Floats load(const Storage* source) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
  }
  static void store(Floats value, Storage* destination) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(destination),
                     _mm256_cvtps_ph(canonical(value), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
};
#else
using Float16 = PortableFloat16;
#endif

// destination = function(a, b) in float32, element by element; operands equal or apart.
template <class Format, class Function>
inline void transform_vectors(void* destination, const void* a, const void* b, std::size_t count,
                              Function function) {
  using Storage = typename Format::Storage;
  auto* out = static_cast<Storage*>(destination);
  const auto* left = static_cast<const Storage*>(a);
  const auto* right = static_cast<const Storage*>(b);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Format::store(function(Format::load(left + i), Format::load(right + i)), out + i);
  }
  if (i == count) return;
  const std::size_t bytes = (count - i) * sizeof(Storage);
  Storage padded_left[lanes] = {};
  Storage padded_right[lanes] = {};
  __builtin_memcpy(padded_left, left + i, bytes);
  __builtin_memcpy(padded_right, right + i, bytes);
  Format::store(function(Format::load(padded_left), Format::load(padded_right)), padded_left);
  __builtin_memcpy(out + i, padded_left, bytes);
}

}  // namespace
}  // namespace unisono::engine
