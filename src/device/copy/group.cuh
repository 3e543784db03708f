// A group, what a warp moves at a time in LL128: 60 units of 16 bytes, which are eight lines of 120
// bytes and a flag. Loads and stores of local memory stay aligned: a thread has unit `lane` and,
// but for those that carry the flags, one of the 28 after these; the unit of a thread that carries
// flags goes half and half into two lines.
#pragma once

#include <cstdint>

#include "device/common.h"
#include "device/copy/local.cuh"
#include "device/ptx/memory.cuh"

namespace unisono::device {

// A thread's part of a group.
struct Share {
  uint4 units[2];
};

__device__ __forceinline__ bool carries_flags(int lane) { return lane % 8 == 7; }

// The offset of a thread's unit in the group's data.
__device__ __forceinline__ std::int64_t share_offset(int lane, int unit) {
  return static_cast<std::int64_t>(unit_bytes) * (unit == 0 ? lane : 32 + lane - lane / 8);
}

// `bytes` are left from the group's begin. `Data` says how a unit is loaded and stored (data.cuh).
template <class Data>
__device__ __forceinline__ Share load_share(const Arithmetic& arithmetic, const Byte* group,
                                            std::int64_t bytes, int lane) {
  Share share{};
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (i == 0 || !carries_flags(lane))
      share.units[i] =
          Data::load_unit(arithmetic, group + share_offset(lane, i), bytes - share_offset(lane, i));
  return share;
}

template <class Data>
__device__ __forceinline__ void store_share(Byte* group, std::int64_t bytes, int lane,
                                            const Share& share) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (i == 0 || !carries_flags(lane))
      Data::store_unit(group + share_offset(lane, i), share.units[i],
                       bytes - share_offset(lane, i));
}

__device__ __forceinline__ void send_share(Byte* lines, int lane, const Share& share,
                                           std::uint64_t flag) {
  auto* out = lines + lane * unit_bytes;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint4 flagged =
        unit_of(i == 0 ? low_word(share.units[0]) : high_word(share.units[0]), flag);
    ptx::store_relaxed_sys(reinterpret_cast<uint4*>(out + i * ll128_group_bytes / 2),
                           carries_flags(lane) ? flagged : share.units[i]);
  }
}

// What is in the slot; with the flags.
__device__ __forceinline__ Share poll_ll128(const Byte* lines, int lane) {
  const auto* in = lines + lane * unit_bytes;
  Share share;
#pragma unroll
  for (int i = 0; i < 2; ++i)
    share.units[i] =
        ptx::load_relaxed_sys(reinterpret_cast<const uint4*>(in + i * ll128_group_bytes / 2));
  return share;
}

// Whether this thread's flags are not the ones awaited. A line is seen whole with its flag.
__device__ __forceinline__ bool misses_flags(const Share& share, int lane, std::uint64_t flag) {
  return carries_flags(lane) &&
         (high_word(share.units[0]) != flag || high_word(share.units[1]) != flag);
}

// The number in the first of them.
__device__ __forceinline__ std::uint32_t missing_number(const Share& share, std::uint64_t flag) {
  const std::uint64_t first = high_word(share.units[0]);
  return number_of(first != flag ? first : high_word(share.units[1]));
}

__device__ __forceinline__ void drop_flags(Share& share, int lane) {
  if (!carries_flags(lane)) return;
  share.units[0] = unit_of(low_word(share.units[0]), low_word(share.units[1]));
  share.units[1] = {};
}

}  // namespace unisono::device
