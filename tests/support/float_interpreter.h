// A plan done step by step on float32: the bits that every engine must give.
#pragma once

#include <unisono/types.h>

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace unisono::test {

// Each rank's output, out of place, for blocks of `count` elements. Plans of messages, with blocks
// of one size. What the plan leaves alone is 0. Throws where the plan deadlocks.
std::vector<std::vector<float>> run_on_floats(const plan::Plan& plan, std::int64_t count,
                                              ReduceOperation operation,
                                              const std::vector<std::vector<float>>& inputs);

}  // namespace unisono::test
