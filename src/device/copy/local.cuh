// Units of a rank's own buffers, at any alignment, whole or cut short by the end of the data.
#pragma once

#include <cstdint>

namespace unisono::device {

using Byte = unsigned char;

__device__ __forceinline__ bool is_aligned(const void* at, unsigned bytes) {
  return (reinterpret_cast<std::uint64_t>(at) & (bytes - 1)) == 0;
}

// The first `bytes` bytes of 8 at `at`; the rest are 0.
__device__ __noinline__ std::uint64_t load_word_slowly(const Byte* at, int bytes) {
  std::uint64_t value = 0;
  if (bytes == 8 && is_aligned(at, 4)) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(at);
    return words[0] | static_cast<std::uint64_t>(words[1]) << 32;
  }
  if (bytes == 8 && is_aligned(at, 2)) {
    const auto* words = reinterpret_cast<const std::uint16_t*>(at);
    for (int i = 0; i < 4; ++i) value |= static_cast<std::uint64_t>(words[i]) << (16 * i);
    return value;
  }
  for (int i = 0; i < bytes; ++i) value |= static_cast<std::uint64_t>(at[i]) << (8 * i);
  return value;
}

__device__ __noinline__ void store_word_slowly(Byte* at, std::uint64_t value, int bytes) {
  if (bytes == 8 && is_aligned(at, 4)) {
    auto* words = reinterpret_cast<std::uint32_t*>(at);
    words[0] = static_cast<std::uint32_t>(value);
    words[1] = static_cast<std::uint32_t>(value >> 32);
    return;
  }
  if (bytes == 8 && is_aligned(at, 2)) {
    auto* words = reinterpret_cast<std::uint16_t*>(at);
    for (int i = 0; i < 4; ++i) words[i] = static_cast<std::uint16_t>(value >> (16 * i));
    return;
  }
  for (int i = 0; i < bytes; ++i) at[i] = static_cast<Byte>(value >> (8 * i));
}

// `bytes` left from here: 8 or more is a whole word, 0 or less none.
__device__ __forceinline__ std::uint64_t load_word(const Byte* at, std::int64_t bytes) {
  if (bytes >= 8 && is_aligned(at, 8)) return *reinterpret_cast<const std::uint64_t*>(at);
  if (bytes <= 0) return 0;
  return load_word_slowly(at, bytes >= 8 ? 8 : static_cast<int>(bytes));
}

__device__ __forceinline__ void store_word(Byte* at, std::uint64_t value, std::int64_t bytes) {
  if (bytes >= 8 && is_aligned(at, 8))
    *reinterpret_cast<std::uint64_t*>(at) = value;
  else if (bytes > 0)
    store_word_slowly(at, value, bytes >= 8 ? 8 : static_cast<int>(bytes));
}

__device__ __forceinline__ uint4 unit_of(std::uint64_t low, std::uint64_t high) {
  return {static_cast<unsigned>(low), static_cast<unsigned>(low >> 32), static_cast<unsigned>(high),
          static_cast<unsigned>(high >> 32)};
}
__device__ __forceinline__ std::uint64_t low_word(uint4 unit) {
  return unit.x | static_cast<std::uint64_t>(unit.y) << 32;
}
__device__ __forceinline__ std::uint64_t high_word(uint4 unit) {
  return unit.z | static_cast<std::uint64_t>(unit.w) << 32;
}

__device__ __forceinline__ uint4 load_unit(const Byte* at, std::int64_t bytes) {
  if (bytes >= 16 && is_aligned(at, 16)) return *reinterpret_cast<const uint4*>(at);
  return unit_of(load_word(at, bytes), load_word(at + 8, bytes - 8));
}

__device__ __forceinline__ void store_unit(Byte* at, uint4 unit, std::int64_t bytes) {
  if (bytes >= 16 && is_aligned(at, 16)) {
    *reinterpret_cast<uint4*>(at) = unit;
    return;
  }
  store_word(at, low_word(unit), bytes);
  store_word(at + 8, high_word(unit), bytes - 8);
}

// Copies, by threads that go as one front through the data: this one takes units `first`,
// `first` + `stride` and so on, `ahead` of them at once.
template <int ahead>
__device__ __forceinline__ void copy_in_front(const Byte* source, Byte* destination,
                                              std::int64_t bytes, std::int64_t first,
                                              std::int64_t stride) {
  constexpr std::int64_t size = 16;
  const bool is_plain = is_aligned(source, size) && is_aligned(destination, size);
  const std::int64_t units = is_plain ? bytes / size : 0;
  const auto* from = reinterpret_cast<const uint4*>(source);
  auto* to = reinterpret_cast<uint4*>(destination);
  for (std::int64_t base = first; base < units; base += ahead * stride) {
    uint4 value[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      if (base + i * stride < units) value[i] = from[base + i * stride];
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      if (base + i * stride < units) to[base + i * stride] = value[i];
  }
  // At any alignment.
  for (std::int64_t at = (units + first) * size; at < bytes; at += stride * size)
    store_unit(destination + at, load_unit(source + at, bytes - at), bytes - at);
}

}  // namespace unisono::device
