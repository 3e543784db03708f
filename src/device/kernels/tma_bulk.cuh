// Large calls by TMA bulk copies, on a small grid: an SM's copy unit keeps more on its way than its
// threads' loads and stores do. A rank loads tiles of what one rank has, or of what
// all have and adds these, and stores them where they are wanted, over NVLink both ways:
//   all-gather, all-to-all, gather   own blocks to the others' outputs
//   scatter      all load their block from the root
//   broadcast    but the root all load a segment each, and store it to one another
//   reduce       the same of all inputs, and store the sum to the root; of two ranks both
//   all-reduce, reduce-scatter   every rank a segment or block, of all inputs
// Warps work alone (tma_bulk_warp.cuh); blocks agree at the start on whether all reach what they
// need (tma_bulk_block.cuh). If not, the call uses LL128 (ll128_all_pairs.cuh) instead.
#pragma once

#include <cstdint>

#include "device/all_pairs.h"
#include "device/kernel_list.h"
#include "device/kernels/address.cuh"
#include "device/kernels/ll128_all_pairs.cuh"
#include "device/kernels/tma_bulk_block.cuh"
#include "device/kernels/tma_bulk_tiles.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/memory.cuh"
#include "device/ptx/tma_bulk.cuh"
#include "device/sync/stamp.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

// Runs any call in LL128. Not inlined, so that it takes no registers of the copies.
template <int most, class Data>
__device__ __forceinline__ bool run_rounds_out_of_line(Ll128Warp<most, Data, true>& self,
                                                       int warp_of_block, int blocks) {
  return run_rounds(self, warp_of_block, blocks);
}
template <int most>
__device__ __noinline__ bool run_rounds_out_of_line(Ll128Warp<most, AnyData, true>& self,
                                                    int warp_of_block, int blocks) {
  return run_rounds(self, warp_of_block, blocks);
}

// The part of a block among those that do something; false if a wait was given up.
template <int most, class Data>
__device__ __forceinline__ bool run_way(const BulkLaunch& launch, const Watch& watch,
                                        const Place& place, const BulkPeerBuffers& views,
                                        const BulkRouteMode& way) {
  if (way.copies && ptx::has_bulk_copies) {
    const bool is_complete = run_tiles<most, Data>(launch, watch, place, views);
    return __syncthreads_or(is_complete ? 0 : 1) == 0;
  }
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp_of_block = static_cast<int>(threadIdx.x / 32);
  const int warp =
      static_cast<int>(blockIdx.x) * ll128_warps_of_block(launch.lines.ranks) + warp_of_block;
  auto* own = at_address<Ll128Region>(launch.lines.states);
  Ll128Warp<most, Data, true> self{launch.lines,
                                   watch,
                                   place,
                                   lane,
                                   warp,
                                   launch.lines.sends,
                                   launch.lines.local_copies,
                                   launch.lines.receives,
                                   own,
                                   0,
                                   0,
                                   false};
  const bool is_complete = run_rounds_out_of_line(self, warp_of_block, way.blocks);
  if (__syncthreads_or(is_complete ? 0 : 1) != 0) return false;
  if (self.has_begun && lane == 0) own->rounds[warp] = self.round;
  return true;
}

template <int most, class Data>
__device__ __forceinline__ void run_bulk(const BulkLaunch& launch) {
  __shared__ BulkPeerBuffers views;
  auto* own = at_address<Ll128Region>(launch.lines.states);
  ptx::wait_for_kernel_before();
  // In a call of few blocks the next kernel starts when this one is over: its blocks would take
  // SMs meanwhile.
  if (static_cast<int>(gridDim.x) > launch.blocks) ptx::let_next_kernel_come();
  // Once given up, the counters of the two ends no longer agree.
  keep_stamp_count(launch.lines.stamp, stamp_begin(launch.lines.stamp));
  if (ptx::load_relaxed_sys(&own->stopped) != 0) return;
  const Watch watch{launch.lines.timeout_ns, at_address<Mailbox>(launch.lines.mailbox),
                    &own->stopped};
  const Place place{launch.lines.rank, static_cast<int>(blockIdx.x), 0, 0};
  BulkBlock block{launch, watch, place, own->bulk.calls[blockIdx.x] + 1, views};
  BulkRouteMode way{};
  if (!block.agree(way)) return;
  // The host knows where it is this rank that cannot copy.
  if (!way.copies && launch.outputs[launch.lines.rank] != 0) tell_fallback(launch.lines);
  if (static_cast<int>(blockIdx.x) < way.blocks) {
    if (!run_way<most, Data>(launch, watch, place, views, way)) return;
    block.signal();
    const bool has_ended = block.await_ends();
    if (__syncthreads_or(has_ended ? 0 : 1) != 0) return;
  }
  // Also for those that this call does not have.
  const unsigned number = blockIdx.x + threadIdx.x * gridDim.x;
  if (number < ll128_max_blocks) own->bulk.calls[number] = block.call;
  if (threadIdx.x == 0) stamp_end_out_of_line(launch.lines.stamp);
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_BULK_KERNEL(family, data, most, ...)                                  \
  extern "C" __global__ void __launch_bounds__(ll128_threads, 1)                      \
      unisono_##family##_##data##_##most(const __grid_constant__ BulkLaunch launch) { \
    run_bulk<most, DataOf<DataKind::data>>(launch);                                   \
  }
// NOLINTEND(bugprone-macro-parentheses)
UNISONO_BULK_KERNELS(UNISONO_BULK_KERNEL)
#undef UNISONO_BULK_KERNEL

}  // namespace unisono::device
