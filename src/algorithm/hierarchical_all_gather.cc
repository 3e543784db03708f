// Hierarchical all-gather: first every lane gathers between nodes, all lanes at once, so that a
// node has every block once, spread over its ranks; then the ranks of each node share what they
// have. (Singh, Singh, Bhatele: PCCL, section 4; lanes.h says how unequal nodes are served,
// hierarchical.h where chunks are placed.)
//
//   equal nodes: N of M ranks, b bytes a block
//   steps          between nodes: ring N-1; recursive, Bruck, PAT ceil(log2 N)
//                  inside: ring M-1, but N (M-1) after rings, see hierarchical.h; direct 1
//   bytes sent     (p - 1) b, of which (N - 1) b between nodes (recursive, N no power of two: more)
//   bytes reduced  none
//   cost           steps α + (N - 1) b β_between + N (M - 1) b β_inside
//
// Unequal nodes: these are bounds, with M the largest node, and the bytes between nodes
// times the lanes that a rank runs. The levels are in thread blocks of their own and overlap from
// tile to tile. Nothing that was sent is overwritten. Two slots per connection, where a
// level is a ring (see ring_all_gather.cc), else one.
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
  static constexpr Collective collective = Collective::all_gather;

  static Cost cost(const Request& request, Hierarchy hierarchy, double block_bytes) {
    return cost_of_two_levels(
        request, hierarchy, block_bytes,
        cost_of_gather_between_nodes(hierarchy.between, request.placement, block_bytes), false);
  }

  using HalfWriter::HalfWriter;

  void write(int channel) {
    if (staged_) builder_.need_scratch(request_.placement.ranks());
    const int first_channel = channel * lanes_.lane_channels();
    Ready gathered;
    for (int lane : lanes_.lanes_of(lanes_.local_index())) {
      const Group group = lanes_.group_of(lane);
      const BlockMap map = map_of(lane, channel);
      Phase phase{.program = builder_,
                  .group = group,
                  .channel = first_channel + lanes_.lane_channel(lane),
                  .first_scratch_block = staged_ ? request_.placement.ranks() : 0,
                  .chunks_per_block = chunks_per_block_};
      const bool in_place = request_.in_place && !staged_;
      const Ready one = gather_between_nodes(
          phase, hierarchy_.between, in_place ? map.at(lanes_.node()) : plan::input(channel), map);
      gathered.insert(gathered.end(), one.begin(), one.end());
    }
    Phase phase{.program = builder_,
                .group = node_,
                .channel = first_channel,
                .start = gathered,
                .chunks_per_block = chunks_per_block_};
    const Ready complete = gather_in_node(phase, hierarchy_.inside, shares(channel));
    if (staged_) shuffle(first_channel, complete);
  }

 private:
  BlockMap map_of(int lane, int channel) const {
    if (staged_)
      return lanes_.in_scratch(lane, lanes_.first_place_of(lane), chunks_per_block_, channel);
    return lanes_.at_owners(lane, plan::Buffer::output, chunks_per_block_, channel);
  }

  Shares shares(int channel) const {
    Shares result;
    for (int member = 0; member < node_.size(); ++member) {
      std::vector<Run>& share = result.emplace_back();
      for (int lane : lanes_.lanes_of(member)) {
        BlockMap map = map_of(lane, channel);
        if (!staged_) map.limit_message(1);
        const std::vector<Run> runs = map.runs(0, lanes_.nodes());
        share.insert(share.end(), runs.begin(), runs.end());
      }
    }
    return result;
  }

  // From lane after lane in scratch to rank after rank in the output.
  void shuffle(int channel, const Ready& complete) {
    StepList copies;
    std::int64_t place = 0;
    for (int lane = 0; lane < lanes_.count(); ++lane)
      for (int node = 0; node < lanes_.nodes(); ++node)
        if (lanes_.carries(lane, node))
          copies.copy({plan::scratch(place++), 1}, {plan::output(lanes_.owner(lane, node)), 1});
    plan::BlockBuilder block = builder_.block(channel, -1, -1);
    wait_for(block, complete);
    copies.write_to(block);
  }
};

template <BetweenNodes between, InsideNode inside>
using Algorithm = HierarchicalEntry<Writer, between, inside>;

using enum BetweenNodes;

}  // namespace

const Entry hierarchical_ring_all_gather = Algorithm<ring, InsideNode::ring>::entry(
    "hierarchical_ring", "Rings between nodes, one for each local index, then a ring inside.");
const Entry hierarchical_ring_direct_all_gather = Algorithm<ring, InsideNode::direct>::entry(
    "hierarchical_ring_direct",
    "Rings between nodes, one for each local index, then everybody to everybody inside.");
const Entry hierarchical_recursive_all_gather = Algorithm<recursive, InsideNode::ring>::entry(
    "hierarchical_recursive",
    "Recursive doubling between nodes, for each local index, then a ring inside.");
const Entry hierarchical_recursive_direct_all_gather =
    Algorithm<recursive, InsideNode::direct>::entry(
        "hierarchical_recursive_direct",
        "Recursive doubling between nodes, for each local index, then everybody to everybody "
        "inside.");
const Entry hierarchical_bruck_all_gather = Algorithm<bruck, InsideNode::ring>::entry(
    "hierarchical_bruck",
    "Bruck's algorithm between nodes, for each local index, then a ring inside.");
const Entry hierarchical_pat_all_gather = Algorithm<pat, InsideNode::ring>::entry(
    "hierarchical_pat", "PAT between nodes, for each local index, then a ring inside.");

}  // namespace unisono::algorithm
