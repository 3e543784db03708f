// What the hierarchical algorithms share: the choice of algorithms for their two levels.
//
// Placing chunks. PCCL's all-gather concatenates what arrives and transposes at the end, because
// its levels are library calls that know of no order but their own; a plan can put every chunk
// directly where it belongs. But then a lane's blocks lie apart (ranks 0, 8, 16, ... of
// nodes of 8), and a message with several of them becomes one message each. So:
//
//   ring                   sends single blocks anyway: chunks go directly to their places, no
//                          shuffle. Messages of one chunk let an executor cut the largest tiles. A
//                          ring inside the node takes a round for each block of a lane.
//   recursive, Bruck, PAT  are for small sizes, where a message costs more than copying it: lanes
//                          are kept contiguous in scratch, inside a node a lane is one message, and
//                          an explicit shuffle copies blocks between scratch and their places. More
//                          than one channel would undo this: they use one.
#pragma once

#include <vector>

#include "algorithm/algorithm.h"
#include "algorithm/parts/group.h"
#include "algorithm/parts/lanes.h"
#include "algorithm/parts/node_phase.h"

namespace unisono::algorithm {

// What each lane runs. For a reduce-scatter there is no Bruck.
enum class BetweenNodes { ring, recursive, bruck, pat };

struct Hierarchy {
  BetweenNodes between;
  InsideNode inside;
};

// Whether lanes are kept contiguous, and several blocks go in one message.
bool sends_long_messages(BetweenNodes between);
// The same, where it makes a difference: an all-gather's or reduce-scatter's lanes are in scratch.
bool is_staged(const Request& request, BetweenNodes between);

// How many of the request's channels are used: as many as fit into a plan, when each of them takes
// `ways` for each of lane_channels().
int channels_used(const Request& request, BetweenNodes between, int ways);
// Not even one fits: one node is far larger than two others.
Status fits_channels(const Request& request, int ways);
// The header for these channels.
plan::Header hierarchical_header(const Request& request, BetweenNodes between, int ways,
                                 int chunks_per_channel, bool joins_lane);

Ready gather_between_nodes(Phase& phase, BetweenNodes between, plan::Location own,
                           const BlockMap& blocks);
// Algorithms that keep partial sums do it in `sums`, or in scratch if it is nullptr.
Ready reduce_between_nodes(Phase& phase, BetweenNodes between, const BlockMap& contributions,
                           plan::Location result, const BlockMap* sums);

// What the collectives cost for one rank of a lane with blocks of `block_bytes`; all steps and
// bytes are between nodes.
Cost cost_of_gather_between_nodes(BetweenNodes between, const topo::Placement& placement,
                                  double block_bytes);
Cost cost_of_reduce_between_nodes(BetweenNodes between, const topo::Placement& placement,
                                  double block_bytes);

// The most lanes that a rank runs.
int most_lanes_of_a_rank(const topo::Placement& placement);
// For an all-gather or a reduce-scatter, with blocks of `block_bytes`.
std::vector<LaneLoad> lane_loads(const topo::Placement& placement, BetweenNodes between,
                                 double block_bytes);
// The same collectives over both levels, `between_nodes` being one lane's cost.
Cost cost_of_two_levels(const Request& request, Hierarchy hierarchy, double block_bytes,
                        Cost between_nodes, bool reduces);

}  // namespace unisono::algorithm
