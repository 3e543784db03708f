#include "algorithm/parts/hierarchical.h"

#include <algorithm>

#include "algorithm/parts/group_collectives.h"
#include "algorithm/parts/group_ring.h"
#include "algorithm/parts/level_chain.h"
#include "algorithm/parts/pat_cost.h"
#include "algorithm/parts/powers.h"
#include "algorithm/parts/recursive_cost.h"
#include "algorithm/request.h"
#include "base/error.h"
#include "plan/check.h"

namespace unisono::algorithm {
namespace {

// Single blocks in a message: they need not be contiguous, and the chain is the shortest.
constexpr int pat_aggregation = 1;

Cost all_between_nodes(Cost cost) {
  cost.steps_inter_node = cost.steps;
  cost.messages_of_all_inter_node = cost.messages_of_all;
  cost.bytes_sent_inter_node = cost.bytes_sent;
  return cost;
}

// Every block but one, in so many messages of each member.
Cost cost_of_all_but_one(std::int64_t steps, int messages, int nodes, double block_bytes,
                         bool adds) {
  const double bytes = block_bytes * (nodes - 1);
  return all_between_nodes({.steps = steps,
                            .messages_inter_node = messages,
                            .messages_of_all = std::int64_t{nodes} * messages,
                            .bytes_sent = bytes,
                            .bytes_reduced = adds ? bytes : 0});
}

// The same of a lane's ring, which goes round the nodes in their order.
Cost cost_of_ring_of_nodes(const topo::Placement& placement, double block_bytes, bool adds) {
  const int nodes = placement.nodes();
  const topo::Levels& levels = placement.levels();
  Cost cost = cost_of_all_but_one(nodes - 1, nodes - 1, nodes, block_bytes, adds);
  if (!levels.empty())
    set_steps_leaving(cost, longest_on_ring(levels, nodes, nodes - 1, [&](int node) {
                        return levels.left_between(node, (node + 1) % nodes);
                      }));
  return cost;
}

}  // namespace

bool sends_long_messages(BetweenNodes between) { return between != BetweenNodes::ring; }

bool is_staged(const Request& request, BetweenNodes between) {
  return sends_long_messages(between) && request.placement.nodes() > 1 &&
         request.placement.max_ranks_on_a_node() > 1;
}

namespace {

int channels_for(const Request& request, int ways) {
  return ways * Lanes(request.placement, 0).lane_channels();
}

}  // namespace

int channels_used(const Request& request, BetweenNodes between, int ways) {
  if (sends_long_messages(between)) return 1;
  const int fitting = plan::format_limits().max_channels / channels_for(request, ways);
  return std::max(1, std::min(request.channels, fitting));
}

Status fits_channels(const Request& request, int ways) {
  const int needed = channels_for(request, ways);
  const int most = plan::format_limits().max_channels;
  if (needed <= most) return {};
  return misuse("a node of ", request.placement.max_ranks_on_a_node(),
                " ranks among much smaller ones needs ", needed, " channels; a plan has at most ",
                most, ", so the second smallest node must have more ranks");
}

plan::Header hierarchical_header(const Request& request, BetweenNodes between, int ways,
                                 int chunks_per_channel, bool joins_lane) {
  const int nodes = request.placement.nodes();
  int most = 1;
  if (sends_long_messages(between)) most = joins_lane ? nodes : (nodes + 1) / 2;
  const int channels = channels_used(request, between, ways);
  plan::Header header = header_for(request, channels * chunks_per_channel, most);
  header.channels = channels * channels_for(request, ways);
  return header;
}

Ready gather_between_nodes(Phase& phase, BetweenNodes between, plan::Location own,
                           const BlockMap& blocks) {
  if (phase.group.size() == 1) between = BetweenNodes::ring;
  phase.overlaps_tiles = true;
  switch (between) {
    case BetweenNodes::ring:
      return write_ring_all_gather(phase, own, blocks);
    case BetweenNodes::recursive:
      return write_recursive_all_gather(phase, own, blocks);
    case BetweenNodes::bruck:
      return write_bruck_all_gather(phase, own, blocks);
    case BetweenNodes::pat:
      return write_pat_all_gather(phase, own, blocks, pat_aggregation);
  }
  return {};
}

Ready reduce_between_nodes(Phase& phase, BetweenNodes between, const BlockMap& contributions,
                           plan::Location result, const BlockMap* sums) {
  if (phase.group.size() == 1) between = BetweenNodes::ring;
  phase.overlaps_tiles = true;
  if (between == BetweenNodes::recursive)
    return write_recursive_reduce_scatter(phase, contributions, result, sums);
  if (between == BetweenNodes::pat)
    return write_pat_reduce_scatter(phase, contributions, result, pat_aggregation);
  return write_ring_reduce_scatter(phase, contributions, result);
}

Cost cost_of_gather_between_nodes(BetweenNodes between, const topo::Placement& of,
                                  double block_bytes) {
  const int nodes = of.nodes();
  if (between == BetweenNodes::ring) return cost_of_ring_of_nodes(of, block_bytes, false);
  const topo::Placement placement = of.one_rank_per_node();
  CostTally tally(placement);
  if (between == BetweenNodes::bruck) {
    Cost cost = cost_of_all_but_one(ceil_log2(nodes), ceil_log2(nodes), nodes, block_bytes, false);
    if (placement.levels().empty()) return cost;
    for (int step = 0; step < ceil_log2(nodes); ++step) {
      for (int node = 0; node < nodes; ++node)
        tally.send(node, (node + nodes - (1 << step)) % nodes, 0);
      tally.end_phase();
    }
    cost.steps_leaving = tally.total(0).steps_leaving;
    return cost;
  }
  if (between == BetweenNodes::pat)
    return cost_of_all_but_one(pat_all_gather_steps(PatTrees(nodes, pat_aggregation)), nodes - 1,
                               nodes, block_bytes, false);
  tally_recursive_all_gather(tally, Group::all(nodes, 0), block_bytes);
  return all_between_nodes(tally.total(0));
}

Cost cost_of_reduce_between_nodes(BetweenNodes between, const topo::Placement& of,
                                  double block_bytes) {
  const int nodes = of.nodes();
  if (between == BetweenNodes::ring) return cost_of_ring_of_nodes(of, block_bytes, true);
  if (between == BetweenNodes::pat)
    return cost_of_all_but_one(pat_reduce_scatter_steps(PatTrees(nodes, pat_aggregation)),
                               nodes - 1, nodes, block_bytes, true);
  const topo::Placement placement = of.one_rank_per_node();
  CostTally tally(placement);
  const double reduced = tally_recursive_reduce_scatter(tally, Group::all(nodes, 0), block_bytes);
  return all_between_nodes(tally.total(reduced));
}

int most_lanes_of_a_rank(const topo::Placement& placement) {
  int fewest = placement.ranks();
  for (int node = 0; node < placement.nodes(); ++node)
    fewest = std::min(fewest, placement.ranks_on(node));
  return (placement.max_ranks_on_a_node() + fewest - 1) / fewest;
}

std::vector<LaneLoad> lane_loads(const topo::Placement& placement, BetweenNodes between,
                                 double block_bytes) {
  const Lanes lanes(placement, 0);
  std::vector<LaneLoad> loads;
  for (int lane = 0; lane < lanes.count(); ++lane) {
    const int blocks = lanes.blocks_in(lane);
    loads.push_back({blocks * block_bytes, sends_long_messages(between) ? 1 : blocks});
  }
  return loads;
}

Cost cost_of_two_levels(const Request& request, Hierarchy hierarchy, double block_bytes,
                        Cost between_nodes, bool reduces) {
  const topo::Placement& placement = request.placement;
  const NodeCost inside_node = cost_in_node(
      placement, hierarchy.inside, lane_loads(placement, hierarchy.between, block_bytes), reduces);
  const int lanes = most_lanes_of_a_rank(placement);
  Cost cost = between_nodes;
  cost.messages_of_all =
      placement.max_ranks_on_a_node() * cost.messages_of_all + inside_node.messages_of_all;
  cost.messages_of_all_inter_node *= placement.max_ranks_on_a_node();
  cost.messages = inside_node.messages + std::max(cost.steps, cost.messages_inter_node);
  cost.steps += inside_node.steps;
  cost.bytes_sent_inter_node *= lanes;
  cost.bytes_sent = cost.bytes_sent_inter_node + inside_node.sent;
  if (is_staged(request, hierarchy.between)) cost.bytes_copied = placement.ranks() * block_bytes;
  cost.bytes_reduced = cost.bytes_reduced * lanes + inside_node.reduced;
  cost.exact = placement.is_uniform();
  return cost;
}

}  // namespace unisono::algorithm
