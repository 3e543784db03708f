// The sum of float8 numbers through the processor's float16 conversions, which halves the work.
//
// Both formats become float16 by shifting: e5m2 exactly, e4m3 times 2^-8, which makes the
// subnormals of both formats coincide. The exact sum is rounded to float16 by the processor and
// from there to float8 by integer arithmetic. Rounding twice gives what rounding once does: a sum
// needs more than float16's 11 bits only if one operand is below 2^-4 units in the last place of
// the other, where neither rounding can reach a tie. (Products have no such gap; they take the
// general way.)
#pragma once

#include "engine/reduce/float_formats.h"

#if defined(__F16C__) && defined(__AVX2__)
#define UNISONO_FLOAT8_SUM 1

namespace unisono::engine {
namespace {

inline constexpr std::size_t half_lanes = 2 * lanes;
typedef std::int16_t Halves [[gnu::vector_size(2 * half_lanes)]];

struct FloatPair {
  Floats low;
  Floats high;
};

#if defined(__AVX512F__)
inline Halves widen_to_halves(const std::uint8_t* source) {
  return __builtin_bit_cast(
      Halves, _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source))));
}
inline FloatPair floats_of_halves(Halves halves) {
  const auto bits = __builtin_bit_cast(__m512i, halves);
  return {_mm512_maskz_cvtph_ps(all_lanes, _mm512_maskz_extracti64x4_epi64(0xf, bits, 0)),
          _mm512_maskz_cvtph_ps(all_lanes, _mm512_maskz_extracti64x4_epi64(0xf, bits, 1))};
}
inline Halves halves_of_floats(FloatPair value) {
  constexpr int rounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const __m256i low = _mm512_maskz_cvtps_ph(all_lanes, value.low, rounding);
  const __m256i high = _mm512_maskz_cvtps_ph(all_lanes, value.high, rounding);
  const __m512i twice_low = _mm512_maskz_broadcast_i64x4(0xff, low);
  return __builtin_bit_cast(Halves, _mm512_maskz_inserti64x4(0xff, twice_low, high, 1));
}
inline void narrow_halves(Halves value, std::uint8_t* destination) {
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(destination),
      _mm512_maskz_cvtepi16_epi8(~__mmask32{0}, __builtin_bit_cast(__m512i, value)));
}
#else
inline Halves widen_to_halves(const std::uint8_t* source) {
  return __builtin_bit_cast(
      Halves, _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source))));
}
inline FloatPair floats_of_halves(Halves halves) {
  const auto bits = __builtin_bit_cast(__m256i, halves);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(bits)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(bits, 1))};
}
inline Halves halves_of_floats(FloatPair value) {
  return __builtin_bit_cast(
      Halves, _mm256_set_m128i(_mm256_cvtps_ph(value.high, _MM_FROUND_TO_NEAREST_INT),
                               _mm256_cvtps_ph(value.low, _MM_FROUND_TO_NEAREST_INT)));
}
inline void narrow_halves(Halves value, std::uint8_t* destination) {
  const auto wide = __builtin_bit_cast(__m256i, value);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(destination),
      _mm_packus_epi16(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1)));
}
#endif

inline Halves halves_of(const std::uint8_t* source, Float8E5M2) {
  return widen_to_halves(source) << 8;
}
inline Halves halves_of(const std::uint8_t* source, Float8E4M3) {
  const Halves scaled = ((widen_to_halves(source) << 8) >> 1) & static_cast<std::int16_t>(0xbf80);
  // The NaN, and nothing else, carries into the exponent's top bit, which makes it float16's NaN.
  return scaled | ((scaled + std::int16_t{0x80}) & std::int16_t{0x4000});
}

template <class Format>
inline void store_halves(Halves value, std::uint8_t* destination) {
  constexpr int mantissa_bits = 23 - Format::dropped_bits;
  constexpr int shift = 10 - mantissa_bits;
  constexpr std::int16_t below_tie = (1 << (shift - 1)) - 1;
  constexpr std::int16_t largest_finite = Format::largest_finite;
  const Halves magnitude = value & std::int16_t{0x7fff};
  const Halves odd = (magnitude >> shift) & std::int16_t{1};
  const Halves rounded = (magnitude + below_tie + odd) >> shift;
  const Halves clamped = rounded < largest_finite ? rounded : Halves{} + largest_finite;
  const Halves result = clamped | ((value >> 8) & std::int16_t{0x80});
  constexpr std::int16_t infinity = 0x7c00;
  narrow_halves(magnitude > infinity ? Halves{} + std::int16_t{Format::nan} : result, destination);
}

template <class Format>
inline void add_float8(std::uint8_t* destination, const std::uint8_t* a, const std::uint8_t* b) {
  const FloatPair left = floats_of_halves(halves_of(a, Format()));
  const FloatPair right = floats_of_halves(halves_of(b, Format()));
  const FloatPair sum = {left.low + right.low, left.high + right.high};
  store_halves<Format>(halves_of_floats(sum), destination);
}

template <class Format>
void sum_float8(void* destination, const void* a, const void* b, std::size_t count) {
  auto* out = static_cast<std::uint8_t*>(destination);
  const auto* left = static_cast<const std::uint8_t*>(a);
  const auto* right = static_cast<const std::uint8_t*>(b);
  std::size_t i = 0;
  for (; i + half_lanes <= count; i += half_lanes) {
    add_float8<Format>(out + i, left + i, right + i);
  }
  if (i == count) return;
  std::uint8_t padded_left[half_lanes] = {};
  std::uint8_t padded_right[half_lanes] = {};
  __builtin_memcpy(padded_left, left + i, count - i);
  __builtin_memcpy(padded_right, right + i, count - i);
  add_float8<Format>(padded_left, padded_left, padded_right);
  __builtin_memcpy(out + i, padded_left, count - i);
}

}  // namespace
}  // namespace unisono::engine

#endif
