// What nvcc brings, for kernels that are compiled for the host and run by simt.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>

#include "simt.h"

// NOLINTBEGIN(bugprone-reserved-identifier)
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
// Of the block that runs: shared_variables.h.
#define __shared__ thread_local
#define __align__(bytes) __attribute__((aligned(bytes)))
#define threadIdx unisono::emulated::indices().thread
#define blockIdx unisono::emulated::indices().block
#define blockDim unisono::emulated::indices().threads
#define gridDim unisono::emulated::indices().blocks

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

inline int __ffs(int value) { return __builtin_ffs(value); }
inline void __syncthreads() { unisono::emulated::meet_block(false); }
inline int __syncthreads_or(int value) { return unisono::emulated::meet_block(value != 0) ? 1 : 0; }
inline void __syncwarp() { unisono::emulated::meet_warp(0); }
// Of whole warps, whose lanes that are over count as 0.
inline unsigned __ballot_sync(unsigned, bool value) {
  const std::uint64_t* values = unisono::emulated::meet_warp(value ? 1 : 0);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= static_cast<unsigned>(values[lane]) << lane;
  return bits;
}
inline int __any_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) != 0 ? 1 : 0; }
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  const std::uint64_t* values = unisono::emulated::meet_warp(value);
  return static_cast<unsigned>(*std::max_element(values, values + 32));
}
inline std::int64_t __shfl_sync(unsigned, std::int64_t value, int lane) {
  return static_cast<std::int64_t>(
      unisono::emulated::meet_warp(static_cast<std::uint64_t>(value))[lane]);
}
inline unsigned atomicExch(unsigned* at, unsigned value) {
  return std::atomic_ref(*at).exchange(value);
}
inline float fminf(float a, float b) { return std::fmin(a, b); }
// NOLINTEND(bugprone-reserved-identifier)
