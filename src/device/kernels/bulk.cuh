// Large calls by few thread blocks, in bulk copies: a multiprocessor's copy unit keeps more on its
// way than its threads' loads and stores do. A rank loads tiles of what one rank has, or of what
// all have and adds these, and stores them where they are wanted, over NVLink both ways:
//   all-gather, all-to-all, gather   own blocks to the others' outputs
//   scatter      all load their block from the root
//   broadcast    but the root all load a segment each, and store it to one another
//   reduce       likewise of all inputs, and store the sum to the root; of two ranks both
//   all-reduce, reduce-scatter   every rank a segment or block, of all inputs
// Warps work alone, each on its own tiles and stages. One thread asks for all copies: stage by
// stage it loads ahead. A stage that is copied is loaded again once its stores have read it; one
// that is added, at once, as the sum has a place of its own.
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
inline constexpr int warp_stride = 32 * static_cast<int>(unit_bytes);

// By rank, where this rank reaches the buffers.
struct BulkViews {
  std::uint64_t inputs[direct_max_ranks];
  std::uint64_t outputs[direct_max_ranks];
};

// Where a flow comes from, in the order of the sum, and goes to.
struct BulkRoute {
  std::uint64_t sources[direct_max_ranks];
  std::uint64_t destinations[direct_max_ranks];
  int stores;
};

// A thread block's part in agreeing on a call and in its end.
struct BulkBlock {
  const BulkLaunch& launch;
  const Watch& watch;
  const Place& place;
  std::uint64_t call;  // of this block, from 1
  BulkViews& views;    // shared

  // A thread for each rank, by distance from this one.
  __device__ int distance() const { return static_cast<int>(threadIdx.x); }
  __device__ int peer() const { return rank_at(launch.lines, distance()); }
  __device__ bool is_peer() const { return distance() > 0 && distance() < launch.lines.ranks; }
  __device__ LinesRegion& region_of_peer() const {
    return *at_address<LinesRegion>(launch.lines.peers[distance()].out);
  }
  __device__ const LinesRegion& region() const {
    return *at_address<const LinesRegion>(launch.lines.peers[distance()].in);
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
  } else if (distance() == 0) {
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
  const BulkRoute* routes;  // shared
  std::uint64_t* loaded;    // shared: a barrier for each stage
  Byte* stages;             // shared; behind them the sum of a warp that adds
  int loads;                // into a stage
  int stage_bytes;
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
  __device__ Byte* stage(const Cursor& cursor) const { return stages + cursor.stage * stage_bytes; }
  __device__ Byte* sum() const { return stages + launch.stages * stage_bytes; }
  // A flow's, in registers: a rank's number, its bit and its address one after the other take the
  // thread that asks for copies as long as a kilobyte's way.
  struct Route {
    const Byte* sources[most];
    Byte* destinations[most];
    int stores;
  };
  __device__ Route route(int flow) const;
  __device__ void load(const Cursor& cursor, const Route& route) const;
  __device__ bool await_loads(const Cursor& cursor) const;
  __device__ void add(const Byte* stage, std::uint32_t bytes) const;
  template <int units, class Combine>
  __device__ void add_units(const Byte* at, Byte* to, Combine combine) const;
  template <class Combine>
  __device__ void add_whole(const Byte* stage, int& at, int end, Combine combine) const;
  __device__ void store(const Cursor& cursor, const Route& route, const Byte* from) const;
  __device__ void move_end() const;
  // False if a wait was given up.
  __device__ bool run_copies(bool asks);
  __device__ bool run_sums(bool asks);
  __device__ bool run();
};

template <int most>
__device__ __forceinline__ typename BulkWarp<most>::Route BulkWarp<most>::route(int flow) const {
  Route found;
#pragma unroll
  for (int i = 0; i < most; ++i) {
    found.sources[i] = at_address<const Byte>(routes[flow].sources[i]);
    found.destinations[i] = at_address<Byte>(routes[flow].destinations[i]);
  }
  found.stores = routes[flow].stores;
  return found;
}

template <int most>
__device__ __forceinline__ void BulkWarp<most>::load(const Cursor& cursor,
                                                     const Route& route) const {
  const std::uint32_t bytes = bytes_at(cursor);
  std::uint64_t* barrier = loaded + cursor.stage;
  ptx::announce_bytes(barrier, bytes * static_cast<unsigned>(loads));
  Byte* to = stage(cursor);
#pragma unroll
  for (int i = 0; i < most; ++i)
    if (i < loads)
      ptx::load_in_bulk(to + i * launch.tile_bytes, route.sources[i] + cursor.at, bytes, barrier);
}

template <int most>
__device__ __forceinline__ bool BulkWarp<most>::await_loads(const Cursor& cursor) const {
  const Wanted wanted{Failure::message, launch.lines.rank, 0,
                      static_cast<std::uint64_t>(place.tile) + 1};
  return wait_until_in_warp(watch, place, wanted, [&](std::uint64_t&) {
    return ptx::has_phase_ended(loaded + cursor.stage, cursor.phase);
  });
}

// A warp's stride of units further on each.
template <int most>
template <int units, class Combine>
__device__ __forceinline__ void BulkWarp<most>::add_units(const Byte* at, Byte* to,
                                                          Combine combine) const {
  uint4 parts[most][units];
#pragma unroll
  for (int i = 0; i < most; ++i)
#pragma unroll
    for (int unit = 0; unit < units; ++unit)
      if (i < loads)
        parts[i][unit] =
            *reinterpret_cast<const uint4*>(at + i * launch.tile_bytes + unit * warp_stride);
#pragma unroll
  for (int i = 1; i < most; ++i)
    if (i < loads) combine(parts[0], parts[i]);
#pragma unroll
  for (int unit = 0; unit < units; ++unit)
    *reinterpret_cast<uint4*>(to + unit * warp_stride) = parts[0][unit];
}

// What is left is less than a warp reads at once.
template <int most>
template <class Combine>
__device__ __forceinline__ void BulkWarp<most>::add_whole(const Byte* stage, int& at, int end,
                                                          Combine combine) const {
  constexpr int ahead = most <= 2 ? 4 : 2;
  for (; at + (ahead - 1) * warp_stride < end; at += ahead * warp_stride)
    add_units<ahead>(stage + at, sum() + at, combine);
}

// The type is looked at once: the sums that training is made of are in line.
template <int most>
__device__ __forceinline__ void BulkWarp<most>::add(const Byte* stage, std::uint32_t bytes) const {
  const Arithmetic& arithmetic = launch.lines.arithmetic;
  const auto any = [&](auto& a, const auto& b) { combine_units(arithmetic, a, b); };
  int at = lane * static_cast<int>(unit_bytes);
  const auto end = static_cast<int>(bytes);
  const auto type = static_cast<Type>(arithmetic.type);
  const bool is_sum = static_cast<Combine>(arithmetic.combine) == Combine::sum;
  if (is_sum && type == Type::float32)
    add_whole(stage, at, end, [](auto& a, const auto& b) { add_as<Float32>(a, b); });
  else if (is_sum && type == Type::bfloat16)
    add_whole(stage, at, end, [](auto& a, const auto& b) { add_as<BFloat16>(a, b); });
  else if (is_sum && type == Type::float16)
    add_whole(stage, at, end, [](auto& a, const auto& b) { add_as<Float16>(a, b); });
  else
    add_whole(stage, at, end, any);
  for (; at < end; at += warp_stride) add_units<1>(stage + at, sum() + at, any);
  // What this thread stored, before the copies of the thread that asks for them.
  ptx::fence_bulk_copies_of_shared();
  __syncwarp();
}

template <int most>
__device__ __forceinline__ void BulkWarp<most>::store(const Cursor& cursor, const Route& route,
                                                      const Byte* from) const {
  const std::uint32_t bytes = bytes_at(cursor);
#pragma unroll
  for (int i = 0; i < most; ++i)
    if (i < route.stores) ptx::store_in_bulk(route.destinations[i] + cursor.at, from, bytes);
  ptx::close_group_of_stores();
}

// Behind the last whole unit, by a thread for each flow.
template <int most>
__device__ __forceinline__ void BulkWarp<most>::move_end() const {
  const std::int64_t at = whole_bytes();
  const std::int64_t left = launch.bytes - at;
  if (left == 0 || lane >= launch.flows) return;
  const BulkRoute& route = routes[lane];
  const auto part_of = [&](int i) {
    return load_unit(at_address<const Byte>(route.sources[i]) + at, left);
  };
  uint4 sum[1] = {part_of(0)};
  for (int i = 1; i < loads; ++i) {
    const uint4 part[1] = {part_of(i)};
    combine_units<1>(launch.lines.arithmetic, sum, part);
  }
  for (int i = 0; i < route.stores; ++i)
    store_unit(at_address<Byte>(route.destinations[i]) + at, sum[0], left);
}

template <int most>
__device__ __forceinline__ bool BulkWarp<most>::run_copies(bool asks) {
  Cursor cursor = begin();
  Cursor next = cursor;
  const auto load_next = [&] {
    if (asks) load(next, route(next.flow));
    advance(next);
  };
  for (int i = 0; i < launch.stages - bulk_stages_behind && is_within(next); ++i) load_next();
  for (; is_within(cursor); advance(cursor)) {
    if (is_within(next)) {
      if (asks) ptx::wait_until_stores_have_read<bulk_stages_behind - 1>();
      load_next();
    }
    if (!await_loads(cursor)) return false;
    if (asks) store(cursor, route(cursor.flow), stage(cursor));
    ++place.tile;
  }
  return true;
}

// Of one flow, whose route stays in registers where they suffice.
template <int most>
__device__ __forceinline__ bool BulkWarp<most>::run_sums(bool asks) {
  const Route kept = route(0);
  const auto way = [&] { return most <= 4 ? kept : route(0); };
  Cursor cursor = begin();
  Cursor next = cursor;
  const auto load_next = [&] {
    if (asks) load(next, way());
    advance(next);
  };
  for (int i = 0; i < launch.stages && is_within(next); ++i) load_next();
  for (; is_within(cursor); advance(cursor)) {
    if (!await_loads(cursor)) return false;
    // The sum before.
    if (asks) ptx::wait_until_stores_have_read<0>();
    __syncwarp();
    add(stage(cursor), bytes_at(cursor));
    if (asks) store(cursor, way(), sum());
    if (is_within(next)) load_next();
    ++place.tile;
  }
  return true;
}

template <int most>
__device__ __forceinline__ bool BulkWarp<most>::run() {
  if (launch.flows == 0) return true;
  if (worker == 0) move_end();
  const bool asks = lane == 0;
  // What other threads have acquired or stored, before the copies.
  ptx::fence_bulk_copies();
  const bool is_complete = loads > 1 ? run_sums(asks) : run_copies(asks);
  if (!is_complete) return false;
  if (asks) ptx::wait_until_stores_are_complete();
  ptx::fence_bulk_copies();
  return true;
}

// The own part of a sum first, then by distance; stores to the own rank last.
__device__ __forceinline__ void find_routes(const BulkLaunch& launch, const BulkViews& views,
                                            BulkRoute (&routes)[direct_max_ranks]) {
  const auto number = static_cast<int>(threadIdx.x);
  if (number < launch.flows) {
    const BulkFlow& flow = launch.flow[number];
    BulkRoute& route = routes[number];
    int sources = 0;
    int stores = 0;
    for (int distance = 0; distance < launch.lines.ranks; ++distance) {
      const int source = rank_at(launch.lines, distance);
      if (has(launch.sources, source))
        route.sources[sources++] = views.inputs[source] + flow.source;
      const int destination = rank_at(launch.lines, distance + 1);
      if (has(static_cast<unsigned>(flow.destinations), destination))
        route.destinations[stores++] = views.outputs[destination] + flow.destination;
    }
    route.stores = stores;
  }
  __syncthreads();
}

template <int most>
__device__ __forceinline__ bool run_tiles(const BulkLaunch& launch, const Watch& watch,
                                          const Place& place, const BulkViews& views) {
  __shared__ std::uint64_t loaded[lines_max_warps_of_block * bulk_max_stages];
  __shared__ BulkRoute routes[direct_max_ranks];
  find_routes(launch, views, routes);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (static_cast<int>(blockIdx.x) >= launch.blocks || warp >= launch.warps) return true;
  std::uint64_t* barriers = loaded + warp * bulk_max_stages;
  if (lane < launch.stages) ptx::make_transfer_barrier(barriers + lane, 1);
  __syncwarp();
  const std::int64_t blocks = launch.blocks;
  const bool adds = (launch.sources & (launch.sources - 1)) != 0;
  const int loads = adds ? launch.lines.ranks : 1;
  const int stage_bytes = loads * launch.tile_bytes;
  const int warp_bytes = launch.stages * stage_bytes + (adds ? launch.tile_bytes : 0);
  BulkWarp<most> self{launch,
                      watch,
                      place,
                      routes,
                      barriers,
                      bulk_stages + warp * warp_bytes,
                      loads,
                      stage_bytes,
                      lane,
                      warp * blocks + blockIdx.x,
                      blocks * launch.warps};
  return self.run();
}

// By lines. Of whatever a call asks not in line, for the registers of the copies beside them.
template <int most, class Data>
__device__ __forceinline__ bool run_rounds_beside(LinesWarp<most, Data, true>& self,
                                                  int warp_of_block) {
  return run_rounds(self, warp_of_block);
}
template <int most>
__device__ __noinline__ bool run_rounds_beside(LinesWarp<most, AnyData, true>& self,
                                               int warp_of_block) {
  return run_rounds(self, warp_of_block);
}

template <int most, class Data>
__device__ __forceinline__ void run_bulk(const BulkLaunch& launch) {
  __shared__ BulkViews views;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp_of_block = static_cast<int>(threadIdx.x / 32);
  auto* own = at_address<LinesRegion>(launch.lines.states);
  ptx::wait_for_kernel_before();
  // In a call of few blocks the next kernel comes when this one is over: its blocks would take
  // multiprocessors meanwhile.
  if (static_cast<int>(gridDim.x) > launch.blocks) ptx::let_next_kernel_come();
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
    LinesWarp<most, Data, true> self{
        launch.lines,       watch, place, lane, warp, launch.lines.sends, launch.lines.keeps,
        launch.lines.takes, own,   0,     0,    false};
    const bool is_complete = run_rounds_beside(self, warp_of_block);
    if (__syncthreads_or(is_complete ? 0 : 1) != 0) return;
    if (self.has_begun && lane == 0) own->rounds[warp] = self.round;
  }
  block.tell();
  const bool has_ended = block.await_ends();
  if (__syncthreads_or(has_ended ? 0 : 1) == 0 && threadIdx.x == 0)
    own->calls[blockIdx.x] = block.call;
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_BULK_KERNEL(name, most, data)                                   \
  extern "C" __global__ void __launch_bounds__(lines_threads, 1)                \
      unisono_bulk_##name##_##most(const __grid_constant__ BulkLaunch launch) { \
    run_bulk<most, data>(launch);                                               \
  }
// NOLINTEND(bugprone-macro-parentheses)
UNISONO_BULK_KERNEL(any, 2, AnyData)
UNISONO_BULK_KERNEL(any, 4, AnyData)
UNISONO_BULK_KERNEL(any, 8, AnyData)
UNISONO_BULK_KERNEL(plain, 2, PlainData<Float32>)
UNISONO_BULK_KERNEL(plain, 4, PlainData<Float32>)
#undef UNISONO_BULK_KERNEL

}  // namespace unisono::device
