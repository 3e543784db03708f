// Steps that take the ranks of a ring one after another, in as few loops as there can be.
#pragma once

#include <cstdint>

#include "algorithm/parts/ring.h"
#include "plan/builder.h"

namespace unisono::algorithm {

// What each step does, with chunk rank * channels + channel of `buffer` as source or destination,
// whichever the operation has.
struct WalkStep {
  plan::Operation operation = plan::Operation::recv_copy_send;
  plan::Buffer buffer = plan::Buffer::output;
  int channel = 0;
  int channels = 1;
};

// One step for each of the ranks at the positions first, first - 1, ... first - count + 1. Where
// nodes hold equally many ranks, numbered node after node, this takes the same time and memory for
// a ring of any length.
void write_walk(plan::BlockBuilder& block, const Ring& ring, std::int64_t first, std::int64_t count,
                const WalkStep& what);

}  // namespace unisono::algorithm
