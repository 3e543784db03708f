// The phases (plan/phases.h) of an algorithm's plans, for ranks of several nodes.
#pragma once

#include <functional>
#include <optional>

#include "algorithm/algorithm.h"
#include "plan/phases.h"

namespace unisono::algorithm {

struct RankPhases {
  plan::Phases mine;
  int thread_blocks = 0;  // the most of any rank inside its node, at once
};

// Whether the engine inside nodes runs a phase; the same answer on every rank.
using RunsInside =
    std::function<bool(const plan::Header& header, const plan::RankProgram& program)>;

// The phases of rank `rank`; on every rank alike nothing, where the plan of some rank cannot be cut
// or has a phase that does not run. Makes the programs of all ranks, or where nodes are alike by
// the entry's symmetry those of one node. Not for blocks of unequal size.
std::optional<RankPhases> phases_of(const Entry& entry, const Request& request, int rank,
                                    const RunsInside& runs_inside);

}  // namespace unisono::algorithm
