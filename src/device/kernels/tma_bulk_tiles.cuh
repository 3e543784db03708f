// The tiles of a call by TMA bulk copies (tma_bulk.cuh).
//
// Warps work alone, each on its own tiles and stages. They take tiles run by run, which keeps a
// warp within few pages: of short calls in turn, of others from a counter, as SMs that share
// a way out are slower. One thread asks for all copies: stage by stage it loads ahead. A
// stage that is copied is loaded again once its stores have read it; one that is added, at once, as
// the sum has a place of its own.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/all_pairs.h"
#include "device/copy/local.cuh"
#include "device/kernels/address.cuh"
#include "device/kernels/data.cuh"
#include "device/kernels/tma_bulk_block.cuh"
#include "device/ptx/memory.cuh"
#include "device/ptx/tma_bulk.cuh"
#include "device/reduce/units.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

extern __shared__ __align__(128) Byte bulk_stages[];
inline constexpr int warp_stride = 32 * static_cast<int>(unit_bytes);

// Where a flow comes from, in the order of the sum, and goes to.
struct BulkRoute {
  std::uint64_t sources[all_pairs_max_ranks];
  std::uint64_t destinations[all_pairs_max_ranks];
  int stores;
};

// A place in a flow, which is a multiple of whole units, and the flow's number: shared memory is
// short.
using BulkTile = std::uint64_t;
__device__ __forceinline__ BulkTile tile_of(std::int64_t at, int flow) {
  return static_cast<BulkTile>(at) | static_cast<unsigned>(flow);
}
__device__ __forceinline__ std::int64_t place_of(BulkTile tile) {
  return static_cast<std::int64_t>(tile & ~BulkTile{unit_bytes - 1});
}
__device__ __forceinline__ int flow_of(BulkTile tile) {
  return static_cast<int>(tile & (unit_bytes - 1));
}

// A warp on its way through its tiles. `most` ranks: the loops over ranks are unrolled. Nothing is
// divided on the way: one thread's division of 64 bits takes as long as the copy unit needs for
// kilobytes.
template <int most, class Data>
struct BulkWarp {
  const BulkLaunch& launch;
  Watch watch;
  Place place;
  const BulkRoute* routes;  // shared
  std::uint64_t* loaded;    // shared: a barrier for each stage
  BulkTile* tiles;          // shared: what was asked for, for each stage
  Byte* stages;             // shared; behind them the sum of a warp that adds
  int loads;                // into a stage
  int stage_bytes;
  int lane;
  DataKind sums;         // of whole units
  std::uint64_t* taken;  // Ll128Region
  std::int64_t worker;   // of all warps of the launch
  std::int64_t workers;

  // What it asks for: of each flow in turn the tile at the same place, of a run of such places, and
  // so on. Warps begin with different flows. The first run is a warp's own, and each takes one more
  // while it is at the one before.
  struct Asked {
    std::int64_t at;
    std::int64_t end;       // of the run
    std::int64_t next_run;  // of the thread that asks
    int flow;
    int left;  // flows at this place
    int stage;
  };
  // What it waits for, in the same order.
  struct Awaited {
    int stage;
    unsigned phase;
  };
  __device__ void begin_run(Asked& asked, bool asks) const;
  __device__ Asked begin(bool asks) const;
  __device__ void advance(Asked& asked, bool asks) const;
  __device__ void advance(Awaited& awaited) const {
    if (++awaited.stage < launch.stages) return;
    awaited.stage = 0;
    awaited.phase ^= 1U;
  }
  __device__ std::int64_t whole_bytes() const {
    return launch.bytes & ~static_cast<std::int64_t>(unit_bytes - 1);
  }
  __device__ bool is_within(const Asked& asked) const { return asked.at < whole_bytes(); }
  __device__ std::uint32_t bytes_at(std::int64_t at) const {
    const std::int64_t left = whole_bytes() - at;
    return static_cast<std::uint32_t>(left < launch.tile_bytes ? left : launch.tile_bytes);
  }
  __device__ Byte* stage(int number) const { return stages + number * stage_bytes; }
  __device__ Byte* sum() const { return stages + launch.stages * stage_bytes; }
  // A flow's, in registers: a rank's number, its bit and its address one after the other take the
  // thread that asks for copies as long as a kilobyte's way.
  struct Route {
    const Byte* sources[most];
    Byte* destinations[most];
    int stores;
  };
  __device__ Route route(int flow) const;
  __device__ void load(const Asked& asked, const Route& route) const;
  __device__ bool await_loads(const Awaited& awaited) const;
  __device__ void add(const Byte* stage, std::uint32_t bytes) const;
  template <class As, int units>
  __device__ void add_units(const Byte* at, Byte* to) const;
  template <class As>
  __device__ void add_whole(const Byte* stage, int& at, int end) const;
  template <class Format>
  __device__ void add_plain(const Byte* stage, int& at, int end) const;
  __device__ void add_any(const Byte* stage, int& at, int end) const;
  __device__ void store(std::int64_t at, const Route& route, const Byte* from) const;
  __device__ void move_end() const;
  __device__ void leave() const;
  // False if a wait was given up.
  __device__ bool run_copies(bool asks);
  __device__ bool run_sums(bool asks);
  __device__ bool run();
};

template <int most, class Data>
__device__ __forceinline__ typename BulkWarp<most, Data>::Route BulkWarp<most, Data>::route(
    int flow) const {
  Route found;
#pragma unroll
  for (int i = 0; i < most; ++i) {
    found.sources[i] = at_address<const Byte>(routes[flow].sources[i]);
    found.destinations[i] = at_address<Byte>(routes[flow].destinations[i]);
  }
  found.stores = routes[flow].stores;
  return found;
}

// By all threads of the warp. The run after it is asked for long before it is needed.
template <int most, class Data>
__device__ __forceinline__ void BulkWarp<most, Data>::begin_run(Asked& asked, bool asks) const {
  asked.at = __shfl_sync(0xffffffffU, asked.next_run, 0) * launch.run_bytes;
  asked.end = asked.at + launch.run_bytes;
  if (!asks) return;
  asked.next_run = launch.has_fixed_schedule != 0
                       ? asked.next_run + workers
                       : workers + static_cast<std::uint32_t>(ptx::add_relaxed_gpu(taken, 1));
}

template <int most, class Data>
__device__ __forceinline__ typename BulkWarp<most, Data>::Asked BulkWarp<most, Data>::begin(
    bool asks) const {
  Asked asked{0, 0, worker, static_cast<int>(worker % launch.flows), launch.flows, 0};
  begin_run(asked, asks);
  return asked;
}

template <int most, class Data>
__device__ __forceinline__ void BulkWarp<most, Data>::advance(Asked& asked, bool asks) const {
  if (++asked.flow == launch.flows) asked.flow = 0;
  if (++asked.stage == launch.stages) asked.stage = 0;
  if (--asked.left > 0) return;
  asked.left = launch.flows;
  asked.at += launch.tile_bytes;
  if (asked.at >= asked.end) begin_run(asked, asks);
}

template <int most, class Data>
__device__ __forceinline__ void BulkWarp<most, Data>::load(const Asked& asked,
                                                           const Route& route) const {
  const std::uint32_t bytes = bytes_at(asked.at);
  std::uint64_t* barrier = loaded + asked.stage;
  tiles[asked.stage] = tile_of(asked.at, asked.flow);
  ptx::announce_bytes(barrier, bytes * static_cast<unsigned>(loads));
  Byte* to = stage(asked.stage);
#pragma unroll
  for (int i = 0; i < most; ++i)
    if (i < loads)
      ptx::load_tma(to + i * launch.tile_bytes, route.sources[i] + asked.at, bytes, barrier);
}

template <int most, class Data>
__device__ __forceinline__ bool BulkWarp<most, Data>::await_loads(const Awaited& awaited) const {
  const Wanted wanted{Failure::message, launch.lines.rank, 0,
                      static_cast<std::uint64_t>(place.tile) + 1};
  return wait_until_in_warp(watch, place, wanted, [&](std::uint64_t&) {
    return ptx::has_phase_ended(loaded + awaited.stage, awaited.phase);
  });
}

// A warp's stride of units further on each.
template <int most, class Data>
template <class As, int units>
__device__ __forceinline__ void BulkWarp<most, Data>::add_units(const Byte* at, Byte* to) const {
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
    if (i < loads) As::template combine<units>(launch.lines.arithmetic, parts[0], parts[i]);
  As::template divide<units>(launch.lines.arithmetic, parts[0]);
#pragma unroll
  for (int unit = 0; unit < units; ++unit)
    *reinterpret_cast<uint4*>(to + unit * warp_stride) = parts[0][unit];
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
  if (launch.lines.arithmetic.divisor == 0)
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

template <int most, class Data>
__device__ __forceinline__ void BulkWarp<most, Data>::store(std::int64_t at, const Route& route,
                                                            const Byte* from) const {
  const std::uint32_t bytes = bytes_at(at);
#pragma unroll
  for (int i = 0; i < most; ++i)
    if (i < route.stores) ptx::store_tma(route.destinations[i] + at, from, bytes);
  ptx::close_group_of_stores();
}

// Behind the last whole unit, by a thread for each flow.
template <int most, class Data>
__device__ __forceinline__ void BulkWarp<most, Data>::move_end() const {
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
  if (loads > 1) AnyData::divide<1>(launch.lines.arithmetic, sum);
  for (int i = 0; i < route.stores; ++i)
    store_unit(at_address<Byte>(route.destinations[i]) + at, sum[0], left);
}

template <int most, class Data>
__device__ __forceinline__ bool BulkWarp<most, Data>::run_copies(bool asks) {
  Asked next = begin(asks);
  Awaited awaited{};
  int ahead = 0;
  const auto load_next = [&] {
    if (asks) load(next, route(next.flow));
    advance(next, asks);
    ++ahead;
  };
  for (int i = 0; i < launch.stages - bulk_stages_behind && is_within(next); ++i) load_next();
  for (; ahead > 0; --ahead, advance(awaited)) {
    if (is_within(next)) {
      if (asks) ptx::wait_until_stores_have_read<bulk_stages_behind - 1>();
      load_next();
    }
    if (!await_loads(awaited)) return false;
    if (asks) {
      const BulkTile tile = tiles[awaited.stage];
      store(place_of(tile), route(flow_of(tile)), stage(awaited.stage));
    }
    ++place.tile;
  }
  return true;
}

// Runs one flow, whose route stays in registers where there are enough.
template <int most, class Data>
__device__ __forceinline__ bool BulkWarp<most, Data>::run_sums(bool asks) {
  const Route kept = route(0);
  const auto way = [&] { return most <= 4 ? kept : route(0); };
  Asked next = begin(asks);
  Awaited awaited{};
  int ahead = 0;
  const auto load_next = [&] {
    if (asks) load(next, way());
    advance(next, asks);
    ++ahead;
  };
  for (int i = 0; i < launch.stages && is_within(next); ++i) load_next();
  for (; ahead > 0; --ahead, advance(awaited)) {
    if (!await_loads(awaited)) return false;
    const std::int64_t at = place_of(tiles[awaited.stage]);
    // The sum before.
    if (asks) ptx::wait_until_stores_have_read<0>();
    __syncwarp();
    add(stage(awaited.stage), bytes_at(at));
    if (asks) store(at, way(), sum());
    if (is_within(next)) load_next();
    ++place.tile;
  }
  return true;
}

// The last to leave begins anew for the next call. Relaxed: in one word, what this thread took
// comes before, and so does what the others took, who have left.
template <int most, class Data>
__device__ __forceinline__ void BulkWarp<most, Data>::leave() const {
  if (launch.has_fixed_schedule != 0) return;
  constexpr int shift = 32;
  const std::uint64_t before = ptx::add_relaxed_gpu(taken, std::uint64_t{1} << shift);
  if (static_cast<std::int64_t>(before >> shift) + 1 == workers) *taken = 0;
}

template <int most, class Data>
__device__ __forceinline__ bool BulkWarp<most, Data>::run() {
  if (launch.flows == 0) return true;
  if (worker == 0) move_end();
  const bool asks = lane == 0;
  // What other threads have acquired or stored, before the copies.
  ptx::fence_bulk_copies();
  const bool is_complete = loads > 1 ? run_sums(asks) : run_copies(asks);
  if (!is_complete) return false;
  if (asks) {
    ptx::wait_until_stores_are_complete();
    leave();
  }
  ptx::fence_bulk_copies();
  return true;
}

// The sums that are in line; looked at once.
__device__ __forceinline__ DataKind kind_of_sums(const Arithmetic& arithmetic) {
  const bool is_plain = static_cast<Combine>(arithmetic.combine) == Combine::sum &&
                        (arithmetic.divisor & (arithmetic.divisor - 1)) == 0;
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

// The own part of a sum first, then by distance; stores to the own rank last.
__device__ __forceinline__ void find_routes(const BulkLaunch& launch, const BulkPeerBuffers& views,
                                            BulkRoute (&routes)[all_pairs_max_ranks]) {
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

template <int most, class Data>
__device__ __forceinline__ bool run_tiles(const BulkLaunch& launch, const Watch& watch,
                                          const Place& place, const BulkPeerBuffers& views) {
  __shared__ std::uint64_t loaded[bulk_max_warps * bulk_max_stages];
  __shared__ BulkTile tiles[bulk_max_warps * bulk_max_stages];
  __shared__ BulkRoute routes[all_pairs_max_ranks];
  find_routes(launch, views, routes);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (warp >= launch.warps) return true;
  std::uint64_t* barriers = loaded + warp * bulk_max_stages;
  if (lane < launch.stages) ptx::make_transfer_barrier(barriers + lane, 1);
  __syncwarp();
  const std::int64_t blocks = launch.blocks;
  const bool adds = (launch.sources & (launch.sources - 1)) != 0;
  const int loads = adds ? launch.lines.ranks : 1;
  const int stage_bytes = loads * launch.tile_bytes;
  const int warp_bytes = launch.stages * stage_bytes + (adds ? launch.tile_bytes : 0);
  BulkWarp<most, Data> self{launch,
                            watch,
                            place,
                            routes,
                            barriers,
                            tiles + warp * bulk_max_stages,
                            bulk_stages + warp * warp_bytes,
                            loads,
                            stage_bytes,
                            lane,
                            kind_of_sums(launch.lines.arithmetic),
                            &at_address<Ll128Region>(launch.lines.states)->taken,
                            warp * blocks + blockIdx.x,
                            blocks * launch.warps};
  return self.run();
}

}  // namespace
}  // namespace unisono::device
