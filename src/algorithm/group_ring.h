// A ring over a group, as group.h describes its collectives.
#pragma once

#include "algorithm/group.h"

namespace unisono::algorithm {

// All-gather: size-1 steps; each member sends all blocks but its successor's. Slots: 1.
Ready write_ring_all_gather(Phase& phase, plan::Location own, const BlockMap& blocks);
// Reduce-scatter: size-1 steps; each member sends, added up, all blocks but its own. Slots: 1.
Ready write_ring_reduce_scatter(Phase& phase, const BlockMap& contributions, plan::Location result);

}  // namespace unisono::algorithm
