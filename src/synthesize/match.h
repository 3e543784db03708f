// One greedy all-gather on a time-expanded network.
#pragma once

#include <cstdint>
#include <vector>

#include "synthesize/routes.h"
#include "synthesize/schedule.h"

namespace unisono::synthesize {

// Transfers by start. Every rank reaches every other one.
std::vector<Transfer> match_all_gather(const LinkGraph& graph, const Routes& routes,
                                       const std::vector<float>& between, int chunks,
                                       std::uint64_t seed);

}  // namespace unisono::synthesize
