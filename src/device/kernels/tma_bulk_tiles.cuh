// How warps move the tiles of a call by TMA bulk copies (tma_bulk.cuh).
#pragma once

#include <cstdint>

#include "device/all_pairs.h"
#include "device/copy/local.cuh"
#include "device/kernels/address.cuh"
#include "device/kernels/data.cuh"
#include "device/kernels/tma_bulk_block.cuh"
#include "device/kernels/tma_bulk_routes.cuh"
#include "device/kernels/tma_bulk_sums.cuh"
#include "device/kernels/tma_bulk_warp.cuh"
#include "device/ptx/memory.cuh"
#include "device/ptx/tma_bulk.cuh"
#include "device/reduce/units.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

extern __shared__ __align__(128) Byte bulk_stages[];

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
  return wait_until_in_warp</*tells=*/false>(watch, place, wanted, [&](std::uint64_t&) {
    return ptx::has_phase_ended(loaded + awaited.stage, awaited.phase);
  });
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
  uint4 sum[1] = {};
  for (int i = 0; i < loads; ++i) {
    const uint4 part[1] = {AnyData::load_unit(launch.lines.arithmetic,
                                              at_address<const Byte>(route.sources[i]) + at, left)};
    if (i == 0)
      sum[0] = part[0];
    else
      combine_units<1>(launch.lines.arithmetic, sum, part);
  }
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
