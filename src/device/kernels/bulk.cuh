// Large calls by few thread blocks, in bulk copies: a multiprocessor's copy unit keeps more on its
// way than its threads' loads and stores do. A rank loads tiles of what one rank has, or of what
// all have and adds these, and stores them where they are wanted, over NVLink both ways:
//   all-gather, all-to-all, gather, scatter   own blocks to the others' outputs
//   broadcast    but the root all load a segment each, and store it to one another
//   reduce       likewise of all inputs, and store the sum to the root
//   all-reduce, reduce-scatter   every rank a segment or block, of all inputs
// Warps work alone, each on its own tiles and stages. One thread asks for all copies: stage by
// stage it loads ahead, until the stage's last stores have read it.
//
// At the start each block posts to all others where they reach this rank's buffers. A post says,
// too, that this rank's buffers may be read and written (release, acquire: the kernels before it).
// At the end it tells all others that its copies are complete, and hears so from them: then nobody
// reads this rank's input nor writes its output any more (release, acquire: the copies). If not all
// reach what they need, which every post says, the call goes by lines (lines.cuh) instead.
#pragma once

#include <cstdint>

#include "device/copy/local.cuh"
#include "device/kernels/address.cuh"
#include "device/kernels/lines.cuh"
#include "device/program.h"
#include "device/ptx/bulk.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/memory.cuh"
#include "device/reduce/units.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

extern __shared__ __align__(128) Byte bulk_stages[];

// By rank, where this rank reaches the buffers.
struct BulkViews {
  std::uint64_t inputs[direct_max_ranks];
  std::uint64_t outputs[direct_max_ranks];
};

// A thread block's part in agreeing on a call and in its end.
struct BulkBlock {
  const BulkLaunch& launch;
  const Watch& watch;
  const Place& place;
  std::uint64_t call;  // of this block, from 1
  BulkViews& views;    // shared

  __device__ int peer() const { return static_cast<int>(threadIdx.x); }
  __device__ bool is_peer() const {
    return peer() < launch.lines.ranks && peer() != launch.lines.rank;
  }
  __device__ LinesRegion& region_of_peer() const {
    return *at_address<LinesRegion>(launch.lines.peers[peer()].out);
  }
  __device__ const LinesRegion& region() const {
    return *at_address<const LinesRegion>(launch.lines.peers[peer()].in);
  }
  __device__ void post(std::uint32_t (&at)[4], std::uint64_t view) const {
    const auto flag = static_cast<std::uint32_t>(call);
    ptx::store_relaxed_sys(reinterpret_cast<uint4*>(at), {static_cast<unsigned>(view), flag,
                                                          static_cast<unsigned>(view >> 32), flag});
  }
  __device__ bool await_post(const std::uint32_t (&at)[4], std::uint64_t& view) const;
  // False if a wait was given up; then whether all reach what they need.
  __device__ bool agree(bool& all_reach);
  __device__ void tell() const;
  __device__ bool await_ends() const;
};

__device__ bool BulkBlock::await_post(const std::uint32_t (&at)[4], std::uint64_t& view) const {
  const auto flag = static_cast<std::uint32_t>(call);
  uint4 post{};
  const auto has_posted = [&](std::uint64_t& seen) {
    post = ptx::load_relaxed_sys(reinterpret_cast<const uint4*>(at));
    seen = post.y;
    return post.y == flag && post.w == flag;
  };
  if (!wait_until(watch, place, {Failure::destination, peer(), 0, call}, has_posted)) return false;
  view = post.x | static_cast<std::uint64_t>(post.z) << 32;
  return true;
}

__device__ bool BulkBlock::agree(bool& all_reach) {
  bool goes_on = true;
  bool reaches = true;
  if (is_peer()) {
    // Release: what the kernels before stored into the input, and read in the output.
    ptx::fence_sys();
    post(region_of_peer().posts[blockIdx.x], launch.outputs[peer()]);
    post(region_of_peer().inputs[blockIdx.x], launch.inputs[peer()]);
    goes_on = await_post(region().posts[blockIdx.x], views.outputs[peer()]) &&
              await_post(region().inputs[blockIdx.x], views.inputs[peer()]);
    // Acquire: what the peer released with them.
    ptx::fence_sys();
    reaches = views.outputs[peer()] != 0;
  } else if (peer() == launch.lines.rank) {
    views.outputs[peer()] = launch.outputs[peer()];
    views.inputs[peer()] = launch.inputs[peer()];
    reaches = launch.outputs[peer()] != 0;
  }
  if (__syncthreads_or(goes_on ? 0 : 1) != 0) return false;
  all_reach = __syncthreads_or(reaches ? 0 : 1) == 0;
  return true;
}

__device__ void BulkBlock::tell() const {
  __syncthreads();
  // Release: the block's copies, which the warps have waited for, and the barrier has joined with
  // this thread, first.
  if (is_peer()) ptx::store_release_sys(&region_of_peer().ends[blockIdx.x], call);
}

__device__ bool BulkBlock::await_ends() const {
  if (!is_peer()) return true;
  const std::uint64_t* end = &region().ends[blockIdx.x];
  const auto has_ended = [&](std::uint64_t& seen) {
    seen = ptx::load_relaxed_sys(end);
    return seen >= call;
  };
  if (!wait_until(watch, place, {Failure::message, peer(), 0, call}, has_ended)) return false;
  // Acquire: what the peer stored before it.
  ptx::load_acquire_sys(end);
  return true;
}

// A warp on its way through its tiles. `most` ranks: the loops over ranks are unrolled. Nothing is
// divided on the way: one thread's division of 64 bits takes as long as the copy unit needs for
// kilobytes.
template <int most>
struct BulkWarp {
  const BulkLaunch& launch;
  Watch watch;
  Place place;
  const BulkViews& views;  // shared
  std::uint64_t* loaded;   // shared: a barrier for each stage
  Byte* stages;            // shared
  int lane;
  std::int64_t worker;  // of all warps of the launch
  std::int64_t workers;

  // A warp's tiles: of each flow in turn those at the same place, and so on. Warps begin with
  // different flows.
  struct Cursor {
    std::int64_t at;
    int flow;
    int left;  // flows at this place
    int stage;
    unsigned phase;
  };
  __device__ Cursor begin() const {
    return {worker * launch.tile_bytes, static_cast<int>(worker % launch.flows), launch.flows, 0,
            0};
  }
  __device__ void advance(Cursor& cursor) const {
    if (++cursor.flow == launch.flows) cursor.flow = 0;
    if (--cursor.left == 0) {
      cursor.left = launch.flows;
      cursor.at += workers * launch.tile_bytes;
    }
    if (++cursor.stage < launch.stages) return;
    cursor.stage = 0;
    cursor.phase ^= 1U;
  }
  __device__ std::int64_t whole_bytes() const {
    return launch.bytes & ~static_cast<std::int64_t>(unit_bytes - 1);
  }
  __device__ bool is_within(const Cursor& cursor) const { return cursor.at < whole_bytes(); }
  __device__ std::uint32_t bytes_at(const Cursor& cursor) const {
    const std::int64_t left = whole_bytes() - cursor.at;
    return static_cast<std::uint32_t>(left < launch.tile_bytes ? left : launch.tile_bytes);
  }
  __device__ bool adds() const { return (launch.sources & (launch.sources - 1)) != 0; }
  __device__ int loads() const { return adds() ? launch.lines.ranks : 1; }
  __device__ Byte* stage(const Cursor& cursor) const {
    return stages + cursor.stage * (loads() * launch.tile_bytes);
  }
  __device__ void load(const Cursor& cursor) const;
  __device__ bool await_loads(const Cursor& cursor) const;
  __device__ void add(Byte* stage, std::uint32_t bytes) const;
  __device__ void store(const Cursor& cursor) const;
  __device__ void move_end() const;
  // False if a wait was given up.
  __device__ bool run();
};

// The own part first, then by distance: the order of the sum.
template <int most>
__device__ __forceinline__ void BulkWarp<most>::load(const Cursor& cursor) const {
  const std::uint32_t bytes = bytes_at(cursor);
  const std::int64_t at = launch.flow[cursor.flow].source + cursor.at;
  std::uint64_t* barrier = loaded + cursor.stage;
  ptx::announce_bytes(barrier, bytes * static_cast<unsigned>(loads()));
  Byte* to = stage(cursor);
#pragma unroll
  for (int distance = 0; distance < most; ++distance) {
    const int rank = rank_at(launch.lines, distance);
    if (distance >= launch.lines.ranks || !has(launch.sources, rank)) continue;
    ptx::load_in_bulk(to, at_address<const Byte>(views.inputs[rank]) + at, bytes, barrier);
    to += launch.tile_bytes;
  }
}

template <int most>
__device__ __forceinline__ bool BulkWarp<most>::await_loads(const Cursor& cursor) const {
  const Wanted wanted{Failure::message, launch.lines.rank, 0,
                      static_cast<std::uint64_t>(place.tile) + 1};
  return wait_until_in_warp(watch, place, wanted, [&](std::uint64_t&) {
    return ptx::has_phase_ended(loaded + cursor.stage, cursor.phase);
  });
}

// In place of the first.
template <int most>
__device__ __forceinline__ void BulkWarp<most>::add(Byte* stage, std::uint32_t bytes) const {
  constexpr int ahead = 2;
  constexpr int stride = 32 * static_cast<int>(unit_bytes);
  const auto at = [&](int distance, int byte) {
    return reinterpret_cast<uint4*>(stage + distance * launch.tile_bytes + byte);
  };
  const auto end = static_cast<int>(bytes);
  for (int base = lane * static_cast<int>(unit_bytes); base < end; base += ahead * stride) {
    uint4 shares[most][ahead];
#pragma unroll
    for (int distance = 0; distance < most; ++distance)
#pragma unroll
      for (int i = 0; i < ahead; ++i)
        if (distance < launch.lines.ranks && base + i * stride < end)
          shares[distance][i] = *at(distance, base + i * stride);
#pragma unroll
    for (int distance = 1; distance < most; ++distance)
      if (distance < launch.lines.ranks)
        combine_units<ahead>(launch.lines.arithmetic, shares[0], shares[distance]);
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      if (base + i * stride < end) *at(0, base + i * stride) = shares[0][i];
  }
  // What this thread stored, before the copies of the thread that asks for them.
  ptx::fence_bulk_copies_of_shared();
  __syncwarp();
}

template <int most>
__device__ __forceinline__ void BulkWarp<most>::store(const Cursor& cursor) const {
  const BulkFlow& flow = launch.flow[cursor.flow];
  const std::int64_t at = flow.destination + cursor.at;
  const std::uint32_t bytes = bytes_at(cursor);
  const Byte* from = stage(cursor);
#pragma unroll
  for (int distance = 1; distance <= most; ++distance) {
    const int rank = rank_at(launch.lines, distance == most ? 0 : distance);
    if ((distance < most && distance >= launch.lines.ranks) ||
        !has(static_cast<unsigned>(flow.destinations), rank))
      continue;
    ptx::store_in_bulk(at_address<Byte>(views.outputs[rank]) + at, from, bytes);
  }
  ptx::close_group_of_stores();
}

// Behind the last whole unit, by a thread for each flow.
template <int most>
__device__ __forceinline__ void BulkWarp<most>::move_end() const {
  const std::int64_t at = whole_bytes();
  const std::int64_t left = launch.bytes - at;
  if (left == 0 || lane >= launch.flows) return;
  const BulkFlow& flow = launch.flow[lane];
  uint4 sum[1] = {};
  bool is_begun = false;
  for (int distance = 0; distance < launch.lines.ranks; ++distance) {
    const int rank = rank_at(launch.lines, distance);
    if (!has(launch.sources, rank)) continue;
    uint4 share[1] = {
        load_unit(at_address<const Byte>(views.inputs[rank]) + flow.source + at, left)};
    if (is_begun)
      combine_units<1>(launch.lines.arithmetic, sum, share);
    else
      sum[0] = share[0];
    is_begun = true;
  }
  for (int rank = 0; rank < launch.lines.ranks; ++rank)
    if (has(static_cast<unsigned>(flow.destinations), rank))
      store_unit(at_address<Byte>(views.outputs[rank]) + flow.destination + at, sum[0], left);
}

template <int most>
__device__ __forceinline__ bool BulkWarp<most>::run() {
  if (launch.flows == 0) return true;
  if (worker == 0) move_end();
  const bool asks = lane == 0;
  // What other threads have acquired or stored, before the copies.
  ptx::fence_bulk_copies();
  Cursor cursor = begin();
  Cursor next = cursor;
  const auto load_next = [&] {
    if (asks) load(next);
    advance(next);
  };
  for (int i = 0; i < launch.stages - bulk_stages_behind && is_within(next); ++i) load_next();
  for (; is_within(cursor); advance(cursor)) {
    // Into the stage of the last tile but one, which has been read by now or soon.
    if (is_within(next)) {
      if (asks) ptx::wait_until_stores_have_read<bulk_stages_behind - 1>();
      load_next();
    }
    if (!await_loads(cursor)) return false;
    if (adds()) add(stage(cursor), bytes_at(cursor));
    if (asks) store(cursor);
    ++place.tile;
  }
  if (asks) ptx::wait_until_stores_are_complete();
  ptx::fence_bulk_copies();
  return true;
}

template <int most>
__device__ __forceinline__ bool run_tiles(const BulkLaunch& launch, const Watch& watch,
                                          const Place& place, const BulkViews& views) {
  __shared__ std::uint64_t loaded[lines_max_warps_of_block * bulk_max_stages];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const auto warps = static_cast<int>(blockDim.x / 32);
  std::uint64_t* barriers = loaded + warp * bulk_max_stages;
  if (lane < launch.stages) ptx::make_transfer_barrier(barriers + lane, 1);
  __syncwarp();
  const auto blocks = static_cast<std::int64_t>(gridDim.x);
  BulkWarp<most> self{launch,        watch,       place, views,
                      barriers,      bulk_stages, lane,  warp * blocks + blockIdx.x,
                      blocks * warps};
  self.stages += static_cast<std::size_t>(warp * launch.stages * self.loads()) *
                 static_cast<std::size_t>(launch.tile_bytes);
  return self.run();
}

template <int most>
__device__ __forceinline__ void run_bulk(const BulkLaunch& launch) {
  __shared__ BulkViews views;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp_of_block = static_cast<int>(threadIdx.x / 32);
  auto* own = at_address<LinesRegion>(launch.lines.states);
  // The next kernel comes when this one is over: its blocks would take multiprocessors meanwhile.
  ptx::wait_for_kernel_before();
  // Once given up, the counters of the two ends no longer agree.
  if (ptx::load_relaxed_sys(&own->stopped) != 0) return;
  const Watch watch{launch.lines.timeout_ns, at_address<Mailbox>(launch.lines.mailbox),
                    &own->stopped};
  const Place place{launch.lines.rank, static_cast<int>(blockIdx.x), 0, 0};
  BulkBlock block{launch, watch, place, own->calls[blockIdx.x] + 1, views};
  bool all_reach = false;
  if (!block.agree(all_reach)) return;
  if (all_reach && ptx::has_bulk_copies) {
    const bool is_complete = run_tiles<most>(launch, watch, place, views);
    if (__syncthreads_or(is_complete ? 0 : 1) != 0) return;
  } else {
    const int warp =
        static_cast<int>(blockIdx.x) * lines_warps_of_block(launch.lines.ranks) + warp_of_block;
    LinesWarp<most, AnyData, false> self{
        launch.lines,       watch, place, lane, warp, launch.lines.sends, launch.lines.keeps,
        launch.lines.takes, own,   0,     0,    false};
    const bool is_complete = self.begin() && run_rest(self, warp_of_block);
    if (__syncthreads_or(is_complete ? 0 : 1) != 0) return;
    if (lane == 0) own->rounds[warp] = self.round;
  }
  block.tell();
  const bool has_ended = block.await_ends();
  if (__syncthreads_or(has_ended ? 0 : 1) == 0 && threadIdx.x == 0)
    own->calls[blockIdx.x] = block.call;
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_BULK_KERNEL(most)                                      \
  extern "C" __global__ void __launch_bounds__(lines_threads, 1)       \
      unisono_bulk_##most(const __grid_constant__ BulkLaunch launch) { \
    run_bulk<most>(launch);                                            \
  }
// NOLINTEND(bugprone-macro-parentheses)
UNISONO_BULK_KERNEL(2)
UNISONO_BULK_KERNEL(4)
UNISONO_BULK_KERNEL(8)
#undef UNISONO_BULK_KERNEL

}  // namespace unisono::device
