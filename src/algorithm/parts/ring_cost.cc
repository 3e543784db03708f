#include "algorithm/parts/ring_cost.h"

#include <algorithm>
#include <vector>

#include "algorithm/parts/level_chain.h"
#include "algorithm/parts/ring.h"

namespace unisono::algorithm {
namespace {

// How many levels the edge leaves; -1: it stays inside a node.
int left_after(const topo::Placement& placement, const Ring& ring, std::int64_t position) {
  if (!ring.crosses_after(position)) return -1;
  return placement.levels_left(ring.rank_at(position), ring.rank_at(position + 1));
}

}  // namespace

Cost ring_cost(const Request& request, int directions, std::int64_t hops, double bytes_sent,
               double bytes_reduced) {
  Cost cost{.steps = hops,
            .messages_of_all = hops * directions * request.placement.ranks(),
            .bytes_sent = bytes_sent,
            .bytes_reduced = bytes_reduced};
  std::vector<int> rings_leaving(static_cast<std::size_t>(request.placement.ranks()));
  const int rings = request.channels * directions;
  LevelChain longest;
  for (int i = 0; i < rings; ++i) {
    const Ring ring(request.placement, i / directions, i % directions == 1);
    cost.steps_inter_node = std::max(cost.steps_inter_node, ring.max_crossings(hops));
    for (int position = 0; position < ring.size(); ++position)
      if (ring.crosses_after(position)) {
        cost.messages_of_all_inter_node += hops;
        ++rings_leaving[static_cast<std::size_t>(ring.rank_at(position))];
      }
    if (!request.placement.levels().empty())
      longest.follow(longest_on_ring(
          request.placement.levels(), ring.size(), hops,
          [&](int position) { return left_after(request.placement, ring, position); }));
  }
  if (!request.placement.levels().empty()) set_steps_leaving(cost, longest);
  cost.messages_of_all_inter_node /= request.channels;
  const int most = *std::max_element(rings_leaving.begin(), rings_leaving.end());
  cost.bytes_sent_inter_node = bytes_sent * most / rings;
  return cost;
}

Cost chain_cost(const Request& request, ChainEnd end, double bytes_sent, double bytes_reduced) {
  const int ranks = request.placement.ranks();
  if (ranks == 1) return {};
  // An eighth of a message inside a node, but neither less nor more than that.
  const double tile_bytes = std::min(
      bytes_sent, request.placement.nodes() > 1 ? Cost::least_tile_bytes_inter_node
                                                : std::clamp(bytes_sent / 8, Cost::least_tile_bytes,
                                                             Cost::least_tile_bytes_inter_node));
  Cost cost{.steps = ranks - 1,
            .messages_of_all = ranks - 1,
            .bytes_sent = bytes_sent,
            .bytes_filling = (ranks - 2) * tile_bytes / 2,
            .bytes_reduced = bytes_reduced};
  std::vector<int> chains_leaving(static_cast<std::size_t>(ranks));
  LevelChain longest;
  for (int channel = 0; channel < request.channels; ++channel) {
    const Ring ring(request.placement, channel);
    const int root = ring.position_of(request.root);
    const int first = end == ChainEnd::before_root ? root : root + 1;
    std::int64_t crossings = 0;
    LevelChain chain;
    for (int position = first; position < first + ranks - 1; ++position) {
      if (!ring.crosses_after(position)) continue;
      ++crossings;
      ++chains_leaving[static_cast<std::size_t>(ring.rank_at(position))];
      if (!request.placement.levels().empty())
        chain =
            chain.after(left_after(request.placement, ring, position), request.placement.levels());
    }
    longest.follow(chain);
    cost.steps_inter_node = std::max(cost.steps_inter_node, crossings);
    cost.messages_of_all_inter_node += crossings;
  }
  if (!request.placement.levels().empty()) set_steps_leaving(cost, longest);
  cost.messages_of_all_inter_node /= request.channels;
  const int most = *std::max_element(chains_leaving.begin(), chains_leaving.end());
  cost.bytes_sent_inter_node = bytes_sent * most / request.channels;
  if (cost.steps_inter_node > 1)
    cost.bytes_filling_inter_node = static_cast<double>(cost.steps_inter_node - 1) * tile_bytes / 2;
  return cost;
}

}  // namespace unisono::algorithm
