// Hierarchical all-reduce: the ranks of each node reduce-scatter among lanes, every lane
// all-reduces between nodes (a reduce-scatter, then an all-gather, all lanes at once), and the
// ranks of each node gather from the lanes. (PCCL, section 4, its two collectives joined; lanes.h
// says how unequal nodes are served.)
//
//   equal nodes: N of M ranks, n bytes
//   steps          inside: ring 2 (M-1), but 2 N (M-1) with rings between nodes, see
//                  hierarchical.h; direct 2
//                  between nodes: ring 2 (N-1); recursive, PAT 2 ceil(log2 N)
//   bytes sent     2 n (p-1)/p, of which 2 n/M (N-1)/N between nodes (recursive, N no power of two:
//                  more)
//   bytes reduced  n (p-1)/p
//   cost           steps α + 2 n (M-1)/M β_inside + 2 n/M (N-1)/N β_between + n (p-1)/p γ
//
// Unequal nodes: these are bounds, with M the largest node, and the bytes between nodes
// times the lanes that a rank runs. Chunks are numbered channel by channel, lane by lane, node by
// node: what a lane sends is contiguous, no shuffle is needed. Sums stand in the output.
// What goes up (reducing) and what comes down (gathering) are on channels of their own, so that the
// levels overlap from tile to tile. A chunk is reduced along one path and then copied: the same
// bits on all ranks. Two slots per connection, where a level is a ring (see ring_all_reduce.cc),
// else one.
#include <algorithm>

#include "algorithm/algorithms.h"
#include "algorithm/parts/hierarchical.h"
#include "algorithm/parts/hierarchical_entry.h"
#include "algorithm/request.h"

namespace unisono::algorithm {
namespace {

std::array<std::int64_t, topo::max_levels + 1> sum_of(
    std::array<std::int64_t, topo::max_levels + 1> one,
    const std::array<std::int64_t, topo::max_levels + 1>& other) {
  for (std::size_t i = 0; i < one.size(); ++i) one[i] += other[i];
  return one;
}

class Writer {
 public:
  static constexpr Collective collective = Collective::all_reduce;
  static constexpr std::string_view source = "PCCL, section 4, both of its collectives";
  static constexpr std::string_view constraint =
      "any number of ranks; one node not 32 times larger than two others";
  static constexpr int ways = 2;  // up, down

  static plan::Header header(const Request& request, BetweenNodes between) {
    const int lanes = request.placement.max_ranks_on_a_node();
    return hierarchical_header(request, between, ways, lanes * request.placement.nodes(),
                               lanes > 1);
  }

  static Cost cost(const Request& request, Hierarchy hierarchy, double block_bytes) {
    const topo::Placement& placement = request.placement;
    const int nodes = placement.nodes();
    const double lane_bytes = block_bytes / placement.max_ranks_on_a_node();
    const std::vector<LaneLoad> loads(
        static_cast<std::size_t>(placement.max_ranks_on_a_node()),
        {lane_bytes, sends_long_messages(hierarchy.between) ? 1 : nodes});
    const NodeCost first = cost_in_node(placement, hierarchy.inside, loads, true);
    const NodeCost last = cost_in_node(placement, hierarchy.inside, loads, false);
    const Cost up = cost_of_reduce_between_nodes(hierarchy.between, placement, lane_bytes / nodes);
    const Cost down =
        cost_of_gather_between_nodes(hierarchy.between, placement, lane_bytes / nodes);
    const int lanes = most_lanes_of_a_rank(placement);
    const double between_nodes = (up.bytes_sent + down.bytes_sent) * lanes;
    return {.steps = first.steps + up.steps + down.steps + last.steps,
            .steps_inter_node = up.steps + down.steps,
            .steps_leaving = sum_of(up.steps_leaving, down.steps_leaving),
            .messages = first.messages + std::max(up.steps, up.messages_inter_node) +
                        std::max(down.steps, down.messages_inter_node) + last.messages,
            .messages_inter_node = up.messages_inter_node + down.messages_inter_node,
            .messages_of_all =
                placement.max_ranks_on_a_node() * (up.messages_of_all + down.messages_of_all) +
                first.messages_of_all + last.messages_of_all,
            .messages_of_all_inter_node =
                placement.max_ranks_on_a_node() * (up.messages_of_all + down.messages_of_all),
            .bytes_sent = first.sent + between_nodes + last.sent,
            .bytes_sent_inter_node = between_nodes,
            .bytes_reduced = first.reduced + up.bytes_reduced * lanes,
            .exact = placement.is_uniform()};
  }

  Writer(plan::ProgramBuilder& builder, const Request& request, Hierarchy hierarchy, int rank)
      : builder_(builder),
        hierarchy_(hierarchy),
        lanes_(request.placement, rank),
        node_(lanes_.node_group()),
        chunks_per_block_(channels_used(request, hierarchy.between, ways) * lanes_.count() *
                          lanes_.nodes()) {}

  void write(int channel) {
    const int up = channel * ways * lanes_.lane_channels();
    const int down = up + lanes_.lane_channels();
    NodeSums summed;
    // Alone on its node a rank has nothing to add before the lanes do.
    plan::Buffer contributions = plan::Buffer::input;
    if (node_.size() > 1) {
      Phase phase = phase_of(node_, up);
      const Shares sums = shares(plan::Buffer::output, channel);
      summed = reduce_in_node(phase, hierarchy_.inside, shares(plan::Buffer::input, channel),
                              sums[static_cast<std::size_t>(lanes_.local_index())]);
      contributions = plan::Buffer::output;
    }
    Ready gathered;
    for (int lane : lanes_.lanes_of(lanes_.local_index())) {
      const Group group = lanes_.group_of(lane);
      const BlockMap result = map_of(plan::Buffer::output, lane, channel);
      Phase reduce = phase_of(group, up + lanes_.lane_channel(lane));
      reduce.start = summed.complete;
      Phase gather = phase_of(group, down + lanes_.lane_channel(lane));
      gather.start =
          reduce_between_nodes(reduce, hierarchy_.between, map_of(contributions, lane, channel),
                               result.at(lanes_.node()), &result);
      free_scratch_block_ = reduce.first_scratch_block;
      const Ready one =
          gather_between_nodes(gather, hierarchy_.between, result.at(lanes_.node()), result);
      free_scratch_block_ = std::max(free_scratch_block_, gather.first_scratch_block);
      gathered.insert(gathered.end(), one.begin(), one.end());
    }
    Phase phase = phase_of(node_, down);
    phase.start = gathered;
    gather_in_node(phase, hierarchy_.inside, shares(plan::Buffer::output, channel), summed.given);
  }

 private:
  Phase phase_of(const Group& group, int channel) {
    return {.program = builder_,
            .group = group,
            .channel = channel,
            .first_scratch_block = free_scratch_block_,
            .chunks_per_block = chunks_per_block_};
  }

  BlockMap map_of(plan::Buffer buffer, int lane, int channel) const {
    const std::int64_t first = (std::int64_t{channel} * lanes_.count() + lane) * lanes_.nodes();
    BlockMap map = BlockMap::strided(buffer, first, 1, 1);
    if (!sends_long_messages(hierarchy_.between)) map.limit_message(1);
    return map;
  }

  Shares shares(plan::Buffer buffer, int channel) const {
    Shares result;
    for (int member = 0; member < node_.size(); ++member) {
      std::vector<Run>& share = result.emplace_back();
      for (int lane : lanes_.lanes_of(member)) {
        const std::vector<Run> runs = map_of(buffer, lane, channel).runs(0, lanes_.nodes());
        share.insert(share.end(), runs.begin(), runs.end());
      }
    }
    return result;
  }

  plan::ProgramBuilder& builder_;
  Hierarchy hierarchy_;
  Lanes lanes_;
  Group node_;
  int chunks_per_block_;
  int free_scratch_block_ = 0;
};

template <BetweenNodes between, InsideNode inside>
using Algorithm = HierarchicalEntry<Writer, between, inside>;

using enum BetweenNodes;

}  // namespace

const Entry hierarchical_ring_all_reduce = Algorithm<ring, InsideNode::ring>::entry(
    "hierarchical_ring", "Rings inside nodes, and rings between, one for each local index.");
const Entry hierarchical_ring_direct_all_reduce = Algorithm<ring, InsideNode::direct>::entry(
    "hierarchical_ring_direct",
    "Everybody to everybody inside nodes, and rings between, one for each local index.");
const Entry hierarchical_recursive_all_reduce = Algorithm<recursive, InsideNode::ring>::entry(
    "hierarchical_recursive",
    "Rings inside nodes, and recursive halving and doubling between, for each local index.");
const Entry hierarchical_recursive_direct_all_reduce =
    Algorithm<recursive, InsideNode::direct>::entry(
        "hierarchical_recursive_direct",
        "Everybody to everybody inside nodes, and recursive halving and doubling between, for "
        "each local index.");
const Entry hierarchical_pat_all_reduce = Algorithm<pat, InsideNode::ring>::entry(
    "hierarchical_pat", "Rings inside nodes, and PAT between, for each local index.");

}  // namespace unisono::algorithm
