// A launch's begin and end on the device's clock, without a launch or a grid's barrier more, and
// without a wait: a store when it begins, and additions that return nothing when a block ends.
#pragma once

#include <cstdint>

#include "device/kernels/address.cuh"
#include "device/ptx/convert.cuh"
#include "device/ptx/memory.cuh"
#include "device/stamps.h"

namespace unisono::device {

// Of the block: the board's `ended` and the time as they were when the block began.
struct KeptStamp {
  std::uint64_t ended;
  std::uint64_t time;
};
__device__ __forceinline__ KeptStamp& kept_stamp() {
  __shared__ KeptStamp kept;
  return kept;
}

__device__ __forceinline__ uint4 stamp_words(std::uint64_t time, std::uint64_t call) {
  return {static_cast<unsigned>(time), static_cast<unsigned>(time >> 32),
          static_cast<unsigned>(call), static_cast<unsigned>(call >> 32)};
}

// By all threads, once the launch before has ended: loads what keep_stamp_count() keeps, beside
// what a kernel waits for anyhow.
__device__ __forceinline__ std::uint64_t stamp_begin(const Stamp& stamp) {
  if (stamp.board == 0 || threadIdx.x != 0) return 0;
  auto* const board = at_address<StampBoard>(stamp.board);
  if (blockIdx.x == 0) {
    const auto time = static_cast<std::uint64_t>(ptx::global_time_ns());
    ptx::store_relaxed_sys(reinterpret_cast<uint4*>(&board->current),
                           stamp_words(time, stamp.call));
    kept_stamp().time = time;
  }
  return ptx::load_relaxed_sys(&board->ended);
}
__device__ __forceinline__ void keep_stamp_count(const Stamp& stamp, std::uint64_t count) {
  if (stamp.board != 0 && threadIdx.x == 0) kept_stamp().ended = count;
}

// By the thread that began, when all threads' data of the block are where they belong.
__device__ __forceinline__ void stamp_end(const Stamp& stamp) {
  if (stamp.board == 0) return;
  auto* const board = at_address<StampBoard>(stamp.board);
  const KeptStamp& kept = kept_stamp();
  const std::uint64_t number = kept.ended >> 32;
  LaunchStamp& at = board->stamps[number % stamp_slots];
  std::uint64_t share = 1;
  if (blockIdx.x == 0) {
    share = (std::uint64_t{1} << 32) - (gridDim.x - 1);
    at.begin = {kept.time, number << stamp_tag_shift | stamp.call};
  }
  ptx::reduce_max_gpu(&at.end, static_cast<std::uint64_t>(ptx::global_time_ns()));
  ptx::reduce_add_gpu(&board->ended, share);
}
// Not in line, for its registers.
__device__ __noinline__ void stamp_end_out_of_line(Stamp stamp) { stamp_end(stamp); }
// The same by all threads of the block, which may have failed in some.
__device__ __forceinline__ void stamp_end_of_block(const Stamp& stamp, bool is_complete) {
  if (stamp.board == 0) return;
  if (__syncthreads_or(is_complete ? 0 : 1) == 0 && threadIdx.x == 0) stamp_end(stamp);
}

}  // namespace unisono::device
