// All-gather and reduce-scatter over a group, as group.h describes them, and over all ranks.
#pragma once

#include "algorithm/algorithm.h"
#include "algorithm/parts/group.h"

namespace unisono::algorithm {

// recursive.cc: any size; members halve their range again and again.
Ready write_recursive_all_gather(Phase& phase, plan::Location own, const BlockMap& blocks);
// Partial sums stand in `sums`, which may be the contributions themselves; without it in scratch:
// half of the blocks, rounded up.
Ready write_recursive_reduce_scatter(Phase& phase, const BlockMap& contributions,
                                     plan::Location result, const BlockMap* sums = nullptr);

// bruck_all_gather.cc: any size.
Ready write_bruck_all_gather(Phase& phase, plan::Location own, const BlockMap& blocks);

// pat_all_gather.cc, pat_reduce_scatter.cc: any size; up to `aggregation` blocks (a power of two)
// in a message.
Ready write_pat_all_gather(Phase& phase, plan::Location own, const BlockMap& blocks,
                           int aggregation);
Ready write_pat_reduce_scatter(Phase& phase, const BlockMap& contributions, plan::Location result,
                               int aggregation);

// direct.cc: any size; all at once.
Ready write_direct_all_gather(Phase& phase, plan::Location own, const BlockMap& blocks);
Ready write_direct_reduce_scatter(Phase& phase, const BlockMap& contributions,
                                  plan::Location result);

// One of the above over all ranks, on every channel: channel c has chunk c of every block. With one
// channel neighbouring blocks are contiguous, and go in one message.
using AllGatherWriter = Ready (*)(Phase&, plan::Location, const BlockMap&);
using ReduceScatterWriter = Ready (*)(Phase&, const BlockMap&, plan::Location);
plan::RankProgram all_gather_program(const Request& request, int rank, AllGatherWriter write);
plan::RankProgram reduce_scatter_program(const Request& request, int rank,
                                         ReduceScatterWriter write);
// The header of either, where one channel sends at most `max_blocks` blocks in a message.
plan::Header group_header(const Request& request, int max_blocks);

}  // namespace unisono::algorithm
