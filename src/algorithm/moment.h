// Points in a rank's program that later steps wait for.
#pragma once

#include "plan/builder.h"

namespace unisono::algorithm {

// When a thread block has done the steps it has so far; by default, the start of the program.
struct Moment {
  Moment() = default;
  Moment(const plan::BlockBuilder& block)  // implicit: reads as "ready = block"
      : thread_block(block.index()), steps(block.steps()) {}

  int thread_block = -1;
  std::int64_t steps = 0;
};

inline plan::BlockBuilder& after(plan::BlockBuilder& block, const Moment& moment) {
  if (moment.thread_block >= 0) block.after(moment.thread_block, moment.steps);
  return block;
}

}  // namespace unisono::algorithm
