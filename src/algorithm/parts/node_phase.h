// All-gather and reduce-scatter inside a node, of what its ranks hold for their lanes.
//
// As in group.h, but a member's block is any list of runs, since a rank's share is strewn over
// the buffer. Lists of one member have the same counts on every rank of the node.
#pragma once

#include <vector>

#include "algorithm/parts/group.h"
#include "topo/placement.h"

namespace unisono::algorithm {

// Inside a node. A ring uses two connections a rank, direct ones all at once: better where every
// pair of ranks has a link of its own.
enum class InsideNode { ring, direct };

using Shares = std::vector<std::vector<Run>>;  // by member

// What reduce_in_node leaves behind.
struct NodeSums {
  Ready complete;  // for `result` to hold the sums
  // By member: what must be complete before what this rank gave to that member is overwritten.
  std::vector<Ready> given;
};
// For nodes of two ranks or more. Before: contributions[i] is what this rank gives to member i.
// After: `result`, which may be contributions[me], holds the node's sums of contributions[me].
NodeSums reduce_in_node(Phase& phase, InsideNode algorithm, const Shares& contributions,
                        const std::vector<Run>& result);
// Before: shares[me] is in place. After: all are. Shares of other members are written without
// waiting for phase.start, but for free[member], unless `free` is empty.
Ready gather_in_node(Phase& phase, InsideNode algorithm, const Shares& shares,
                     const std::vector<Ready>& free = {});

// What a rank holds for one lane: so many bytes in so many messages.
struct LaneLoad {
  double bytes = 0;
  std::int64_t runs = 0;
};

// The longest chain of messages, those of the busiest rank and of all nodes' ranks, and the bytes
// of the rank that sends, or reduces, most.
struct NodeCost {
  std::int64_t steps = 0;
  std::int64_t messages = 0;
  std::int64_t messages_of_all = 0;
  double sent = 0;
  double reduced = 0;
};
NodeCost cost_in_node(const topo::Placement& placement, InsideNode algorithm,
                      const std::vector<LaneLoad>& lanes, bool reduces);

}  // namespace unisono::algorithm
