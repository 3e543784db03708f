// Which ranks reach into each other's memory, and what a plan asks of an engine.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace unisono::plan {

// For each rank, the ranks whose memory its put and read_reduce steps touch, and those with such
// steps that touch its own; ascending. Symmetric: if a is a partner of b, b is one of a.
std::vector<std::vector<int>> partners(const Plan& plan);

// The operations of all steps of all ranks, a bit for each, as in Limits.
std::uint32_t operations(const Plan& plan);

}  // namespace unisono::plan
