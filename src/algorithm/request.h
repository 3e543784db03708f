// What every algorithm asks of a request, and the header that answers it.
#pragma once

#include "algorithm/algorithm.h"

namespace unisono::algorithm {

// Everything the request decides; `max_step_count` is the largest count of a step of any rank.
plan::Header header_for(const Request& request, int chunks_per_block, int max_step_count = 1);

// For Entry::supports: no constraint.
Status any_ranks(const Request& request);

// For Entry::symmetry, of every request.
Symmetry by_rotation(const Request& request);
Symmetry by_exclusive_or(const Request& request);

}  // namespace unisono::algorithm
