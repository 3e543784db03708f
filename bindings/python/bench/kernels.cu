// What the bench does on a device besides calls: inputs, the comparison of results, and what a
// collective is measured against: plain stores, and a kernel that does nothing.
#include "device/ptx/grid.cuh"
#include "program.h"

namespace unisono::python {
namespace {

__device__ std::uint64_t thread() {
  return static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ std::uint64_t threads() { return static_cast<std::uint64_t>(gridDim.x) * blockDim.x; }

template <typename Bits>
__device__ void fill(Bits* out, const RepeatedTable& wanted) {
  const auto* table = reinterpret_cast<const Bits*>(wanted.table);
  for (std::uint64_t i = thread(); i < wanted.count; i += threads())
    out[i] = table[(wanted.phase + i) % wanted.period];
}

template <typename Bits>
__device__ std::uint64_t count_wrong(const Bits* found, const RepeatedTable& wanted) {
  const auto* table = reinterpret_cast<const Bits*>(wanted.table);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = thread(); i < wanted.count; i += threads())
    wrong += found[i] != table[(wanted.phase + i) % wanted.period] ? 1 : 0;
  return wrong;
}

}  // namespace
}  // namespace unisono::python

using unisono::python::RepeatedTable;

extern "C" __global__ void unisono_bench_fill(std::uint64_t out, RepeatedTable wanted) {
  switch (wanted.width) {
    case 1:
      return unisono::python::fill(reinterpret_cast<std::uint8_t*>(out), wanted);
    case 2:
      return unisono::python::fill(reinterpret_cast<std::uint16_t*>(out), wanted);
    case 4:
      return unisono::python::fill(reinterpret_cast<std::uint32_t*>(out), wanted);
    case 8:
      return unisono::python::fill(reinterpret_cast<std::uint64_t*>(out), wanted);
  }
}

// Adds to `total`.
extern "C" __global__ void unisono_bench_count_wrong(std::uint64_t found, RepeatedTable wanted,
                                                     unsigned long long* total) {
  std::uint64_t wrong = 0;
  switch (wanted.width) {
    case 1:
      wrong = unisono::python::count_wrong(reinterpret_cast<const std::uint8_t*>(found), wanted);
      break;
    case 2:
      wrong = unisono::python::count_wrong(reinterpret_cast<const std::uint16_t*>(found), wanted);
      break;
    case 4:
      wrong = unisono::python::count_wrong(reinterpret_cast<const std::uint32_t*>(found), wanted);
      break;
    case 8:
      wrong = unisono::python::count_wrong(reinterpret_cast<const std::uint64_t*>(found), wanted);
      break;
  }
  if (wrong != 0) atomicAdd(total, static_cast<unsigned long long>(wrong));
}

// Is launched and ends as kernels of collectives are.
extern "C" __global__ void unisono_bench_nothing() {
  unisono::device::ptx::wait_for_kernel_before();
  unisono::device::ptx::let_next_kernel_come();
}

// Every thread loads its part of the own block once and stores it to all peers; nobody waits for
// anybody. So an all-gather would be if it needed neither flags nor an own copy.
extern "C" __global__ void __launch_bounds__(unisono::python::bench_threads)
    unisono_bench_push(unisono::python::PushTargets targets) {
  constexpr int unroll = 4;
  const auto* own = reinterpret_cast<const uint4*>(targets.own);
  const std::uint64_t stride = unisono::python::threads();
  std::uint64_t i = unisono::python::thread();
  for (; i + (unroll - 1) * stride < targets.units; i += unroll * stride) {
    uint4 values[unroll];
#pragma unroll
    for (int k = 0; k < unroll; ++k) values[k] = own[i + k * stride];
    for (int peer = 0; peer < targets.peers; ++peer) {
      auto* out = reinterpret_cast<uint4*>(targets.addresses[peer]);
#pragma unroll
      for (int k = 0; k < unroll; ++k) out[i + k * stride] = values[k];
    }
  }
  for (; i < targets.units; i += stride)
    for (int peer = 0; peer < targets.peers; ++peer)
      reinterpret_cast<uint4*>(targets.addresses[peer])[i] = own[i];
}
