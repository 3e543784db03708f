// Plans made of other plans by giving their ranks other numbers.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace unisono::test {

// The plan in which rank `numbers[r]` does what rank r did, and blocks that belong to ranks have
// moved with them; the root, too. A plan of the same collective if every step covers chunks of one
// block, and indices are constant. Sums keep their order in the old numbers.
plan::Plan permuted(const plan::Plan& plan, const std::vector<int>& numbers);

}  // namespace unisono::test
