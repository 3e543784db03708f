// float16 through the processor's conversions (F16C, AVX-512F), a register at a time. Defines
// UNISONO_FLOAT16_VECTORS where the including file is compiled for one of them. Rounding is stated in
// the instruction; denormal float16 numbers convert exactly whatever the thread's flush modes are.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__F16C__) && defined(__AVX2__)
#define UNISONO_FLOAT16_VECTORS 1

#include <immintrin.h>

namespace unisono::engine {
namespace {

#if defined(__AVX512F__)
using Float32Vector = __m512;
inline constexpr std::size_t float16_lanes = 16;
// The unmasked forms make g++ 12 warn of an uninitialised register; with all lanes these are the same.
inline constexpr __mmask16 all_lanes = 0xffff;

inline Float32Vector load_float16(const void* source) {
  return _mm512_maskz_cvtph_ps(all_lanes, _mm256_loadu_si256(static_cast<const __m256i*>(source)));
}
inline void store_float16(void* destination, Float32Vector value) {
  const __m512 canonical = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q),
                                                value, _mm512_set1_ps(__builtin_nanf("")));
  _mm256_storeu_si256(static_cast<__m256i*>(destination),
                      _mm512_maskz_cvtps_ph(all_lanes, canonical,
                                            _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
using Float32Vector = __m256;
inline constexpr std::size_t float16_lanes = 8;

inline Float32Vector load_float16(const void* source) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(source)));
}
inline void store_float16(void* destination, Float32Vector value) {
  const __m256 canonical = _mm256_blendv_ps(value, _mm256_set1_ps(__builtin_nanf("")),
                                            _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  _mm_storeu_si128(static_cast<__m128i*>(destination),
                   _mm256_cvtps_ph(canonical, _MM_FROUND_TO_NEAREST_INT));
}
#endif

struct Float16Vectors {
  void* destination;
  const void* a;
  const void* b;

  template <class Function>
  void apply(std::size_t first, Function function) const {
    const std::size_t offset = first * sizeof(std::uint16_t);
    store_float16(static_cast<char*>(destination) + offset,
                  function(load_float16(static_cast<const char*>(a) + offset),
                           load_float16(static_cast<const char*>(b) + offset)));
  }

  // Fewer elements than a register: computed in padded copies, of which `count` elements come back.
  template <class Function>
  void apply_tail(std::size_t first, std::size_t count, Function function) const {
    const std::size_t offset = first * sizeof(std::uint16_t);
    const std::size_t bytes = count * sizeof(std::uint16_t);
    std::uint16_t left[float16_lanes] = {};
    std::uint16_t right[float16_lanes] = {};
    __builtin_memcpy(left, static_cast<const char*>(a) + offset, bytes);
    __builtin_memcpy(right, static_cast<const char*>(b) + offset, bytes);
    store_float16(left, function(load_float16(left), load_float16(right)));
    __builtin_memcpy(static_cast<char*>(destination) + offset, left, bytes);
  }
};

}  // namespace
}  // namespace unisono::engine

#endif
