// Plans made by hand, small enough to read.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace unisono::test {

// Ring all-reduce of 4 ranks (nccl.txt, Table V), its middle steps in loops.
plan::Plan ring();
// Every index form, nested loops, counts, scratch and waits, in a custom plan of 3 ranks.
plan::Plan nested();
// Each of 2 ranks puts its half to the other, and one reads and reduces: the one-sided steps.
plan::Plan one_sided();

std::vector<plan::Plan> sample_plans();

}  // namespace unisono::test
