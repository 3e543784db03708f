// A schedule as a program of the language, which the compiler makes a plan of.
#pragma once

#include <unisono/result.h>

#include <string>

#include "compile/compile.h"
#include "synthesize/schedule.h"

namespace unisono::synthesize {

// Transfers become copies and reductions, in the order of their start. Those that start together,
// between the same two ranks and of chunks that follow each other, are one. Misuse if a transfer
// names a chunk or rank that there is not, or a chunk that its sender does not have.
Result<compile::Trace> trace_of(const Schedule& schedule, std::string name);

// Its plan. Reductions keep the schedule's order: sums that wait for each other in another one can
// fill all slots. An all-gather's chunks never do, so that all passes may do their work on them.
Result<compile::Compiled> compile_schedule(const Schedule& schedule, std::string name,
                                           compile::Options options);

}  // namespace unisono::synthesize
