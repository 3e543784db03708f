// A ring over a group, as group.h describes its collectives.
#pragma once

#include "algorithm/parts/group.h"

namespace unisono::algorithm {

// For blocks of one run at most (see BlockMap), for which two slots are enough.
//
// All-gather: size-1 steps; each member sends all blocks but its successor's.
Ready write_ring_all_gather(Phase& phase, plan::Location own, const BlockMap& blocks);
// Reduce-scatter: size-1 steps; each member sends, added up, all blocks but its own.
Ready write_ring_reduce_scatter(Phase& phase, const BlockMap& contributions, plan::Location result);

}  // namespace unisono::algorithm
