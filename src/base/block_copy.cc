#include "base/block_copy.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
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

namespace {

// Copies whole blocks of four vectors, loads before stores, and returns how many bytes those were.
using Blocks = std::size_t (*)(std::byte*, const std::byte*, std::size_t);

std::size_t copy_by_16(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t block_bytes = 4 * sizeof(__m128i);
  std::size_t at = 0;
  for (; bytes - at >= block_bytes; at += block_bytes) {
    const auto* words = reinterpret_cast<const __m128i*>(from + at);
    auto* out = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(words), b = _mm_loadu_si128(words + 1);
    const __m128i c = _mm_loadu_si128(words + 2), d = _mm_loadu_si128(words + 3);
    _mm_storeu_si128(out, a);
    _mm_storeu_si128(out + 1, b);
    _mm_storeu_si128(out + 2, c);
    _mm_storeu_si128(out + 3, d);
  }
  return at;
}

[[gnu::target("avx2")]] std::size_t copy_by_32(std::byte* to, const std::byte* from,
                                               std::size_t bytes) {
  constexpr std::size_t block_bytes = 4 * sizeof(__m256i);
  std::size_t at = 0;
  for (; bytes - at >= block_bytes; at += block_bytes) {
    const auto* words = reinterpret_cast<const __m256i*>(from + at);
    auto* out = reinterpret_cast<__m256i*>(to + at);
    const __m256i a = _mm256_loadu_si256(words), b = _mm256_loadu_si256(words + 1);
    const __m256i c = _mm256_loadu_si256(words + 2), d = _mm256_loadu_si256(words + 3);
    _mm256_storeu_si256(out, a);
    _mm256_storeu_si256(out + 1, b);
    _mm256_storeu_si256(out + 2, c);
    _mm256_storeu_si256(out + 3, d);
  }
  return at;
}

std::size_t choose_and_copy(std::byte* to, const std::byte* from, std::size_t bytes);

// Relaxed: every thread that chooses finds the same.
std::atomic<Blocks> copy_blocks{choose_and_copy};

std::size_t choose_and_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  const Blocks chosen = __builtin_cpu_supports("avx2") ? copy_by_32 : copy_by_16;
  copy_blocks.store(chosen, std::memory_order_relaxed);
  return chosen(to, from, bytes);
}

}  // namespace

void block_copy(void* destination, const void* source, std::size_t bytes) {
  if (bytes < least_bytes || overlap(destination, source, bytes)) {
    std::memmove(destination, source, bytes);
    return;
  }
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  const std::size_t done = copy_blocks.load(std::memory_order_relaxed)(to, from, bytes);
  if (done < bytes) std::memcpy(to + done, from + done, bytes - done);
}

void string_copy(void* destination, const void* source, std::size_t bytes) {
  asm volatile("rep movsb" : "+D"(destination), "+S"(source), "+c"(bytes) : : "memory");
}

#else

void block_copy(void* destination, const void* source, std::size_t bytes) {
  if (bytes > 0) std::memmove(destination, source, bytes);
}

void string_copy(void* destination, const void* source, std::size_t bytes) {
  if (bytes > 0) std::memcpy(destination, source, bytes);
}

#endif

}  // namespace unisono
