// What recursive.cc's collectives cost over a group, for all algorithms that are made of them.
#pragma once

#include "algorithm/parts/cost_tally.h"
#include "algorithm/parts/group.h"

namespace unisono::algorithm {

// Adds the phases of all members.
void tally_recursive_all_gather(CostTally& tally, const Group& group, double block_bytes);
// The same; returns the bytes reduced by the member that reduces most.
double tally_recursive_reduce_scatter(CostTally& tally, const Group& group, double block_bytes);

}  // namespace unisono::algorithm
