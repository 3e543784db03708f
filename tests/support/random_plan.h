// Plans at random: well-formed, of every shape that the format has, and without meaning.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace unisono::test {

struct RandomPlanOptions {
  int max_ranks = 6;
  int max_thread_blocks = 4;
  int max_nodes = 6;  // steps and loops in one body
  // Also huge loops, which take long to unroll.
  bool with_long_loops = false;
};

// plan::check accepts it under plan::format_limits(). The same seed gives the same plan.
plan::Plan random_plan(std::uint64_t seed, const RandomPlanOptions& options = {});

}  // namespace unisono::test
