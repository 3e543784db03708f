#include "base/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace unisono {

#if defined(__x86_64__)

namespace {

constexpr std::size_t line_bytes = 64;

// One line at once: the write-combining buffer is full before it must be given up. Stores
// of 16 bytes do as well as wider ones here: memory is slower than either.
void stream_line(std::byte* to, const std::byte* from) {
  __m128i parts[line_bytes / sizeof(__m128i)];
  for (std::size_t i = 0; i < std::size(parts); ++i)
    parts[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
  for (std::size_t i = 0; i < std::size(parts); ++i)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, parts[i]);
}

}  // namespace

void stream_copy(void* destination, const void* source, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  const std::size_t to_line =
      (line_bytes - reinterpret_cast<std::uintptr_t>(to) % line_bytes) % line_bytes;
  const std::size_t head = std::min(to_line, bytes);
  if (head > 0) std::memcpy(to, from, head);
  std::size_t at = head;
  for (; bytes - at >= line_bytes; at += line_bytes) stream_line(to + at, from + at);
  if (at < bytes) std::memcpy(to + at, from + at, bytes - at);
  // Streaming stores are ordered by nothing else, a release included.
  _mm_sfence();
}

#else

void stream_copy(void* destination, const void* source, std::size_t bytes) {
  if (bytes > 0) std::memcpy(destination, source, bytes);
}

#endif

}  // namespace unisono
