// Explanations tell a person of a plan's candidates, and of how far its messages go.
#pragma once

#include <unisono/explanation.h>

#include <string>
#include <vector>

#include "algorithm/algorithm.h"

namespace unisono::comm {

struct Candidate;

PlanCandidate described(const Candidate& candidate);
// "4 racks (+12 us), 2 zones (+28 us)"; empty where no levels are known.
std::string describe(const topo::Levels& levels);
// Counted on the programs of all ranks. Empty where no levels are known, or too many ranks.
std::vector<PlanDistance> distances_of(const algorithm::Entry& entry,
                                       const algorithm::Request& request, double block_bytes);

}  // namespace unisono::comm
