// How a warp adds up the tiles of a stage (tma_bulk_warp.cuh), which follow each other: into shared
// memory of its own.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/all_pairs.h"
#include "device/kernels/data.cuh"
#include "device/kernels/tma_bulk_warp.cuh"
#include "device/ptx/tma_bulk.cuh"
#include "device/reduce/units.cuh"

namespace unisono::device {
namespace {

inline constexpr int warp_stride = 32 * static_cast<int>(unit_bytes);

// The sums that are in line; looked at once.
__device__ __forceinline__ DataKind kind_of_sums(const Arithmetic& arithmetic) {
  const bool is_plain = static_cast<Combine>(arithmetic.combine) == Combine::sum &&
                        (arithmetic.scales_input == 0 || arithmetic.halvings != 0);
  if (!is_plain) return DataKind::any;
  switch (static_cast<Type>(arithmetic.type)) {
    case Type::float32:
      return DataKind::float32;
    case Type::bfloat16:
      return DataKind::bfloat16;
    case Type::float16:
      return DataKind::float16;
    default:
      return DataKind::any;
  }
}

// By calls, across which few registers are kept.
template <int most, class Data>
template <int units>
__device__ __forceinline__ void BulkWarp<most, Data>::add_unlike(const Byte* at, Byte* to) const {
#pragma unroll
  for (int unit = 0; unit < units; ++unit, at += warp_stride, to += warp_stride) {
    const auto load_part = [&](int i) {
      return AnyData::load_unit(launch.lines.arithmetic, at + i * launch.tile_bytes, unit_bytes);
    };
    uint4 sum[1] = {load_part(0)};
    for (int i = 1; i < loads; ++i) {
      const uint4 part[1] = {load_part(i)};
      combine_units<1>(launch.lines.arithmetic, sum, part);
    }
    *reinterpret_cast<uint4*>(to) = sum[0];
  }
}

// A warp's stride of units further on each.
template <int most, class Data>
template <class As, int units>
__device__ __forceinline__ void BulkWarp<most, Data>::add_units(const Byte* at, Byte* to) const {
  if constexpr (std::is_same_v<As, AnyData>) {
    add_unlike<units>(at, to);
  } else {
    uint4 parts[most][units];
#pragma unroll
    for (int i = 0; i < most; ++i)
#pragma unroll
      for (int unit = 0; unit < units; ++unit)
        if (i < loads)
          parts[i][unit] =
              *reinterpret_cast<const uint4*>(at + i * launch.tile_bytes + unit * warp_stride);
    As::template scale_loaded<units>(launch.lines.arithmetic, parts[0]);
#pragma unroll
    for (int i = 1; i < most; ++i) {
      if (i >= loads) continue;
      As::template scale_loaded<units>(launch.lines.arithmetic, parts[i]);
      As::template combine<units>(launch.lines.arithmetic, parts[0], parts[i]);
    }
#pragma unroll
    for (int unit = 0; unit < units; ++unit)
      *reinterpret_cast<uint4*>(to + unit * warp_stride) = parts[0][unit];
  }
}

// What is left is less than a warp reads at once.
template <int most, class Data>
template <class As>
__device__ __forceinline__ void BulkWarp<most, Data>::add_whole(const Byte* stage, int& at,
                                                                int end) const {
  constexpr int ahead = most <= 2 ? 4 : 2;
  for (; at + (ahead - 1) * warp_stride < end; at += ahead * warp_stride)
    add_units<As, ahead>(stage + at, sum() + at);
}

template <int most, class Data>
template <class Format>
__device__ __forceinline__ void BulkWarp<most, Data>::add_plain(const Byte* stage, int& at,
                                                                int end) const {
  if (launch.lines.arithmetic.scales_input == 0)
    add_whole<PlainSums<Format>>(stage, at, end);
  else
    add_whole<PlainData<Format>>(stage, at, end);
}

// The sums that training uses are inlined even in the kernel for any sum.
template <int most, class Data>
__device__ __forceinline__ void BulkWarp<most, Data>::add_any(const Byte* stage, int& at,
                                                              int end) const {
  switch (sums) {
    case DataKind::float32:
      return add_plain<Float32>(stage, at, end);
    case DataKind::bfloat16:
      return add_plain<BFloat16>(stage, at, end);
    case DataKind::float16:
      return add_plain<Float16>(stage, at, end);
    default:
      return add_whole<AnyData>(stage, at, end);
  }
}

template <int most, class Data>
__device__ __forceinline__ void BulkWarp<most, Data>::add(const Byte* stage,
                                                          std::uint32_t bytes) const {
  int at = lane * static_cast<int>(unit_bytes);
  const auto end = static_cast<int>(bytes);
  if constexpr (std::is_same_v<Data, AnyData>)
    add_any(stage, at, end);
  else
    add_plain<typename Data::Element>(stage, at, end);
  for (; at < end; at += warp_stride) add_units<Data, 1>(stage + at, sum() + at);
  // What this thread stored, before the copies of the thread that asks for them.
  ptx::fence_bulk_copies_of_shared();
  __syncwarp();
}

}  // namespace
}  // namespace unisono::device
