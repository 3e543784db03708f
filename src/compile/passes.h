// The passes, in the order in which they run. What each assumes and establishes stands in its file.
#pragma once

#include <unisono/result.h>

#include <algorithm>
#include <cstdint>

#include "compile/module.h"
#include "plan/foreign.h"

namespace unisono::compile {

Status replicate(Module& module);    // instances: more parts of chunks, more channels
Status aggregate(Module& module);    // contiguous moves become one
Status lower(Module& module);        // chunk graph to instruction graph
Status fuse(Module& module);         // recv with reduce, copy and send
Status assign(Module& module);       // thread blocks
Status schedule(Module& module);     // the order in each thread block
Status synchronise(Module& module);  // waits between thread blocks of a rank
Status place(Module& module);        // where scratch chunks lie
Status fit(Module& module);          // the target's limits

// Chunks that a step may have: for the target, or so many that a slot holds each of them.
inline std::int32_t most_step_chunks(const Module& module) {
  constexpr std::int32_t most = 1 << 15;
  const plan::ForeignExecutor* target = module.options.target;
  return target == nullptr ? most : std::min(most, target->limits.max_step_count);
}

// Follows the program's steps in the order written, and says in the user's terms what is wrong
// with what they do: data added twice, a postcondition that is not met.
Status check_contents(const Module& module);

}  // namespace unisono::compile
