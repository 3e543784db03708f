// Hierarchical reduce-scatter: first the ranks of each node add what they have, each for the
// owners in its lanes; then every lane reduces between nodes, all lanes at once. (PCCL, section 4,
// the all-gather backwards; lanes.h says how unequal nodes are served, hierarchical.h where chunks
// are placed.)
//
//   equal nodes: N of M ranks, b bytes a block
//   steps          inside: ring M-1, but N (M-1) before rings, see hierarchical.h; direct 1
//                  between nodes: ring N-1; recursive, PAT ceil(log2 N)
//   bytes sent     (p - 1) b, of which (N - 1) b between nodes (recursive, N no power of two: more)
//   bytes reduced  the same
//   cost           steps α + N (M - 1) b (β_inside + γ) + (N - 1) b (β_between + γ)
//
// Unequal nodes: these are bounds, with M the largest node, and the bytes between nodes
// times the lanes that a rank runs. The node's sums stand in scratch: one block for each node and
// lane of the rank, or all p where messages are long. The levels are in thread blocks of their own
// and overlap from tile to tile. Two slots per connection, where a level is a ring (see
// ring_reduce_scatter.cc), else one.
#include <algorithm>

#include "algorithm/algorithms.h"
#include "algorithm/parts/hierarchical.h"
#include "algorithm/parts/hierarchical_entry.h"
#include "algorithm/parts/sequence.h"
#include "algorithm/request.h"

namespace unisono::algorithm {
namespace {

class Writer : public HalfWriter {
 public:
  static constexpr Collective collective = Collective::reduce_scatter;

  static Cost cost(const Request& request, Hierarchy hierarchy, double block_bytes) {
    return cost_of_two_levels(
        request, hierarchy, block_bytes,
        cost_of_reduce_between_nodes(hierarchy.between, request.placement, block_bytes), true);
  }

  using HalfWriter::HalfWriter;

  void write(int channel) {
    const int first_channel = channel * lanes_.lane_channels();
    Phase phase{.program = builder_,
                .group = node_,
                .channel = first_channel,
                .chunks_per_block = chunks_per_block_};
    if (staged_) phase.start = shuffle(first_channel);
    int scratch_blocks = staged_ ? request_.placement.ranks() : 0;
    std::vector<BlockMap> maps;
    for (int lane : lanes_.lanes_of(lanes_.local_index())) {
      maps.push_back(sums_of(lane, channel, scratch_blocks));
      if (!staged_ && node_.size() > 1) scratch_blocks += lanes_.blocks_in(lane);
    }
    builder_.need_scratch(scratch_blocks);

    // Alone on its node a rank's sums are its contributions.
    if (node_.size() > 1) {
      std::vector<Run> sums;
      for (const BlockMap& map : maps) append(sums, map);
      phase.start = reduce_in_node(phase, hierarchy_.inside, shares(channel), sums).complete;
    }

    std::size_t i = 0;
    for (int lane : lanes_.lanes_of(lanes_.local_index())) {
      const BlockMap& map = maps[i++];
      const Group group = lanes_.group_of(lane);
      Phase between{.program = builder_,
                    .group = group,
                    .channel = first_channel + lanes_.lane_channel(lane),
                    .start = phase.start,
                    .first_scratch_block = scratch_blocks,
                    .chunks_per_block = chunks_per_block_};
      // Only the lane of this rank's own index carries a block for this node.
      const bool is_own = lane == lanes_.local_index();
      const bool may_overwrite = map.buffer() == plan::Buffer::scratch;
      reduce_between_nodes(between, hierarchy_.between, map,
                           is_own ? plan::output(channel) : map.at(lanes_.node()),
                           may_overwrite ? &map : nullptr);
      scratch_blocks = between.first_scratch_block;
    }
  }

 private:
  // Where this rank's contributions stand before the first level.
  BlockMap contributions_of(int lane, int channel) const {
    if (staged_)
      return lanes_.in_scratch(lane, lanes_.first_place_of(lane), chunks_per_block_, channel);
    return lanes_.at_owners(lane, plan::Buffer::input, chunks_per_block_, channel);
  }
  // Where the node's sums for a lane of this rank stand after it.
  BlockMap sums_of(int lane, int channel, int free_scratch) const {
    if (staged_ || node_.size() == 1) return contributions_of(lane, channel);
    return lanes_.in_scratch(lane, free_scratch, chunks_per_block_, channel);
  }

  void append(std::vector<Run>& runs, BlockMap map) const {
    if (!staged_) map.limit_message(1);
    const std::vector<Run> more = map.runs(0, lanes_.nodes());
    runs.insert(runs.end(), more.begin(), more.end());
  }

  Shares shares(int channel) const {
    Shares result;
    for (int member = 0; member < node_.size(); ++member) {
      std::vector<Run>& share = result.emplace_back();
      for (int lane : lanes_.lanes_of(member)) append(share, contributions_of(lane, channel));
    }
    return result;
  }

  // From rank after rank in the input to lane after lane in scratch.
  Ready shuffle(int channel) {
    StepList copies;
    std::int64_t place = 0;
    for (int lane = 0; lane < lanes_.count(); ++lane)
      for (int node = 0; node < lanes_.nodes(); ++node)
        if (lanes_.carries(lane, node))
          copies.copy({plan::input(lanes_.owner(lane, node)), 1}, {plan::scratch(place++), 1});
    builder_.need_scratch(static_cast<int>(place));
    plan::BlockBuilder block = builder_.block(channel, -1, -1);
    copies.write_to(block);
    return {done(block)};
  }
};

template <BetweenNodes between, InsideNode inside>
using Algorithm = HierarchicalEntry<Writer, between, inside>;

using enum BetweenNodes;

}  // namespace

const Entry hierarchical_ring_reduce_scatter = Algorithm<ring, InsideNode::ring>::entry(
    "hierarchical_ring", "A ring inside each node, then rings between, one for each local index.");
const Entry hierarchical_ring_direct_reduce_scatter = Algorithm<ring, InsideNode::direct>::entry(
    "hierarchical_ring_direct",
    "Everybody to everybody inside each node, then rings between, one for each local index.");
const Entry hierarchical_recursive_reduce_scatter = Algorithm<recursive, InsideNode::ring>::entry(
    "hierarchical_recursive",
    "A ring inside each node, then recursive halving between, for each local index.");
const Entry hierarchical_recursive_direct_reduce_scatter =
    Algorithm<recursive, InsideNode::direct>::entry(
        "hierarchical_recursive_direct",
        "Everybody to everybody inside each node, then recursive halving between, for each local "
        "index.");
const Entry hierarchical_pat_reduce_scatter = Algorithm<pat, InsideNode::ring>::entry(
    "hierarchical_pat", "A ring inside each node, then PAT between, for each local index.");

}  // namespace unisono::algorithm
