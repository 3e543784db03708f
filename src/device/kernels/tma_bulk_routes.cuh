// Which addresses the flows of a call by TMA bulk copies connect (tma_bulk.cuh).
#pragma once

#include <cstdint>

#include "device/all_pairs.h"
#include "device/kernels/ll128_all_pairs.cuh"
#include "device/kernels/tma_bulk_block.cuh"

namespace unisono::device {
namespace {

// Where a flow comes from, in the order of the sum, and goes to.
struct BulkRoute {
  std::uint64_t sources[all_pairs_max_ranks];
  std::uint64_t destinations[all_pairs_max_ranks];
  int stores;
};

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

}  // namespace
}  // namespace unisono::device
