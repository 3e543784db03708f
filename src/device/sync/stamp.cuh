// A launch's begin and end on the device's clock, told to the host without a launch or a barrier
// more: one 16-byte store each.
#pragma once

#include <cstdint>

#include "device/kernels/address.cuh"
#include "device/program.h"
#include "device/ptx/convert.cuh"
#include "device/ptx/memory.cuh"

namespace unisono::device {

__device__ __forceinline__ bool tells_begin() { return blockIdx.x == 0 && threadIdx.x == 0; }

__device__ __forceinline__ void store_stamp(LaunchStamp::Half& at, std::uint64_t number,
                                            std::uint64_t call) {
  const std::uint64_t tag = number << stamp_tag_shift;
  const std::uint64_t time = tag | (static_cast<std::uint64_t>(ptx::global_time_ns()) & stamp_mask);
  const std::uint64_t what = tag | (call & stamp_mask);
  ptx::store_relaxed_sys(reinterpret_cast<uint4*>(&at),
                         {static_cast<unsigned>(time), static_cast<unsigned>(time >> 32),
                          static_cast<unsigned>(what), static_cast<unsigned>(what >> 32)});
}
__device__ __forceinline__ LaunchStamp& stamp_at(std::uint64_t mailbox, std::uint64_t number) {
  return at_address<Mailbox>(mailbox)->stamps[number % stamp_slots];
}

// Of the launch that has begun, after the one before it on its stream has ended. Loaded early,
// beside what a kernel waits for anyhow, and used by stamp_begin().
__device__ __forceinline__ std::uint64_t load_stamp_count(const Stamp& stamp) {
  if (!tells_begin() || stamp.count == 0) return 0;
  return ptx::load_relaxed_sys(at_address<const std::uint64_t>(stamp.count));
}
__device__ __forceinline__ void stamp_begin(const Stamp& stamp, std::uint64_t mailbox,
                                            std::uint64_t count) {
  if (!tells_begin() || stamp.count == 0) return;
  const std::uint64_t number = (count >> 32) + 1;
  store_stamp(stamp_at(mailbox, number).begin, number, stamp.call);
}

// By one thread of each of `parts` parts of the launch, once that part's data are where they
// belong; whose is the last, stores the end.
__device__ __forceinline__ void stamp_end(const Stamp& stamp, std::uint64_t mailbox,
                                          unsigned parts) {
  if (stamp.count == 0 || (stamp.call & stamp_goes_on) != 0) return;
  auto* const count = at_address<std::uint64_t>(stamp.count);
  const std::uint64_t before = ptx::add_relaxed_gpu(count, 1);
  if (static_cast<std::uint32_t>(before) + 1 != parts) return;
  const std::uint64_t number = (before >> 32) + 1;
  // The next launch loads it, which begins after this one.
  *count = number << 32;
  store_stamp(stamp_at(mailbox, number).end, number, stamp.call);
}
// By all threads of each warp, which may have failed in some.
__device__ __forceinline__ void stamp_end_of_warp(const Stamp& stamp, std::uint64_t mailbox,
                                                  bool is_complete) {
  if (__any_sync(0xffffffffU, !is_complete) != 0) return;
  if (threadIdx.x % 32 == 0) stamp_end(stamp, mailbox, gridDim.x * (blockDim.x / 32));
}

}  // namespace unisono::device
