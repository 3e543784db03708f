#include "base/block_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace unisono {
namespace {

// The C library's own loops are as good for what is smaller.
constexpr std::size_t least_bytes = 4096;

bool overlap(const void* a, const void* b, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return first < second + bytes && second < first + bytes;
}

}  // namespace

#if defined(__x86_64__)

// A line at a time: four loads, then four stores.
void block_copy(void* destination, const void* source, std::size_t bytes) {
  if (bytes < least_bytes || overlap(destination, source, bytes)) {
    std::memmove(destination, source, bytes);
    return;
  }
  constexpr std::size_t line_bytes = 64;
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  std::size_t at = 0;
  for (; bytes - at >= line_bytes; at += line_bytes) {
    const auto* words = reinterpret_cast<const __m128i*>(from + at);
    auto* out = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(words), b = _mm_loadu_si128(words + 1);
    const __m128i c = _mm_loadu_si128(words + 2), d = _mm_loadu_si128(words + 3);
    _mm_storeu_si128(out, a);
    _mm_storeu_si128(out + 1, b);
    _mm_storeu_si128(out + 2, c);
    _mm_storeu_si128(out + 3, d);
  }
  if (at < bytes) std::memcpy(to + at, from + at, bytes - at);
}

#else

void block_copy(void* destination, const void* source, std::size_t bytes) {
  if (bytes > 0) std::memmove(destination, source, bytes);
}

#endif

}  // namespace unisono
