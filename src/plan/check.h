// Everything about a plan that can be told without running it, and every limit of an executor.
// What it means, and whether it is right, is for src/verify.
#pragma once

#include <unisono/result.h>

#include "plan/plan.h"

namespace unisono::plan {

// A bit of Limits::operations.
constexpr std::uint32_t bit(Operation operation) {
  return std::uint32_t{1} << static_cast<unsigned>(operation);
}

// What an executor can run. A plan that exceeds one is refused when it is made.
struct Limits {
  std::string executor;  // named in messages
  int max_ranks = 1 << 20;
  int max_thread_blocks = 4096;  // a rank
  int max_channels = 64;
  std::int64_t max_steps = 1 << 24;  // a thread block, unrolled
  int max_step_count = 1 << 16;      // chunks in one step
  int max_chunks_per_block = 1 << 20;
  std::int64_t max_scratch_blocks = 1 << 20;
  std::uint32_t operations = 0;  // bit i: operation i can be run; none unless said
};

// The limits of the plan format itself.
Limits format_limits();

// The header and one rank's program: indices inside their buffers for every loop value, peers
// in range and not the rank itself, one thread block per (connection, direction), steps that send
// or receive only where a peer is given, dependencies on existing steps of other thread blocks,
// loops not deeper than max_loop_depth, counts positive, and `limits`.
Status check(const Header& header, const RankProgram& program, const Limits& limits);
// Every program, and that ranks are 0, 1, ... in order.
Status check(const Plan& plan, const Limits& limits);

}  // namespace unisono::plan
