// Vectors of float32 and int32 in the widest register of the including file's instruction set, and
// the way from and to arrays of 8 and 16-bit words, for which compilers have no good portable form.
//
// Only the kernels_*.cc files include this. Everything is in an unnamed namespace on purpose: each
// of them compiles it for another instruction set, and the linker must not merge the copies.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace unisono::engine {
namespace {

#if defined(__AVX512F__)
inline constexpr std::size_t lanes = 16;
#elif defined(__AVX2__)
inline constexpr std::size_t lanes = 8;
#else
inline constexpr std::size_t lanes = 4;
#endif

typedef float Floats [[gnu::vector_size(4 * lanes)]];
// Signed, because vector units before AVX-512 compare nothing else.
typedef std::int32_t Ints [[gnu::vector_size(4 * lanes)]];

inline Ints bits_of(Floats value) { return __builtin_bit_cast(Ints, value); }
inline Floats floats_of(Ints bits) { return __builtin_bit_cast(Floats, bits); }
inline Ints all(std::int32_t value) { return Ints{} + value; }

#if defined(__AVX512F__)

// The unmasked forms make g++ 12 warn of an uninitialised register; with all lanes these are equal.
inline constexpr __mmask16 all_lanes = 0xffff;

inline Ints widen(const std::uint8_t* source) {
  return __builtin_bit_cast(
      Ints, _mm512_maskz_cvtepu8_epi32(all_lanes,
                                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(source))));
}
inline Ints widen(const std::uint16_t* source) {
  return __builtin_bit_cast(
      Ints, _mm512_maskz_cvtepu16_epi32(
                all_lanes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source))));
}
inline void narrow(Ints value, std::uint8_t* destination) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(destination),
                   _mm512_maskz_cvtepi32_epi8(all_lanes, __builtin_bit_cast(__m512i, value)));
}
inline void narrow(Ints value, std::uint16_t* destination) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(destination),
                      _mm512_maskz_cvtepi32_epi16(all_lanes, __builtin_bit_cast(__m512i, value)));
}

#elif defined(__AVX2__)

inline Ints widen(const std::uint8_t* source) {
  return __builtin_bit_cast(
      Ints, _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(source))));
}
inline Ints widen(const std::uint16_t* source) {
  return __builtin_bit_cast(
      Ints, _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source))));
}
inline __m128i narrow_to_words(Ints value) {
  const auto wide = __builtin_bit_cast(__m256i, value);
  return _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
}
inline void narrow(Ints value, std::uint8_t* destination) {
  const __m128i words = narrow_to_words(value);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(destination), _mm_packus_epi16(words, words));
}
inline void narrow(Ints value, std::uint16_t* destination) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(destination), narrow_to_words(value));
}

#elif defined(__x86_64__)

inline Ints widen(const std::uint8_t* source) {
  std::int32_t four = 0;
  __builtin_memcpy(&four, source, sizeof four);
  const __m128i zero = _mm_setzero_si128();
  const __m128i words = _mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero);
  return __builtin_bit_cast(Ints, _mm_unpacklo_epi16(words, zero));
}
inline Ints widen(const std::uint16_t* source) {
  const __m128i words = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(source));
  return __builtin_bit_cast(Ints, _mm_unpacklo_epi16(words, _mm_setzero_si128()));
}
// SSE2 packs with signed saturation only, which extending the sign of the low half makes exact.
inline __m128i narrow_to_words(Ints value) {
  const auto extended = __builtin_bit_cast(__m128i, (value << 16) >> 16);
  return _mm_packs_epi32(extended, extended);
}
inline void narrow(Ints value, std::uint8_t* destination) {
  const __m128i words = narrow_to_words(value);
  const std::int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  __builtin_memcpy(destination, &four, sizeof four);
}
inline void narrow(Ints value, std::uint16_t* destination) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(destination), narrow_to_words(value));
}

#else

template <class Word>
inline Ints widen(const Word* source) {
  typedef Word Words [[gnu::vector_size(sizeof(Word) * lanes)]];
  Words words;
  __builtin_memcpy(&words, source, sizeof words);
  return __builtin_convertvector(words, Ints);
}
template <class Word>
inline void narrow(Ints value, Word* destination) {
  typedef Word Words [[gnu::vector_size(sizeof(Word) * lanes)]];
  const Words words = __builtin_convertvector(value, Words);
  __builtin_memcpy(destination, &words, sizeof words);
}

#endif

}  // namespace
}  // namespace unisono::engine
