// A warp of a call by TMA bulk copies (tma_bulk.cuh).
//
// Warps work alone, each on its own tiles and stages. They take tiles run by run, which keeps a
// warp within few pages: of short calls in turn, of others from a counter, as SMs that share
// a way out are slower. One thread asks for all copies: stage by stage it loads ahead. A
// stage that is copied is loaded again once its stores have read it; one that is added, at once, as
// the sum has a place of its own.
#pragma once

#include <cstdint>

#include "device/all_pairs.h"
#include "device/copy/local.cuh"
#include "device/kernels/tma_bulk_routes.cuh"
#include "device/sync/wait.cuh"

namespace unisono::device {
namespace {

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
  template <int units>
  __device__ void add_unlike(const Byte* at, Byte* to) const;
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

}  // namespace
}  // namespace unisono::device
