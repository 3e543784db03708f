// Programs of the language, written in C++: what the tests of the passes compile.
#pragma once

#include <functional>
#include <string>

#include "compile/trace.h"

namespace unisono::test {

// Steps of a trace, which fail the calling test if they are refused.
class Writer {
 public:
  Writer(Collective collective, int ranks, int chunks, bool in_place, int nodes = 1);

  int ranks() const { return trace_.program().header.ranks; }
  compile::Chunk take(int rank, int buffer, std::int64_t index, std::int64_t count = 1);
  compile::Chunk copy(const compile::Chunk& source, int rank, int buffer, std::int64_t index,
                      int channel = -1);
  compile::Chunk reduce(const compile::Chunk& into, const compile::Chunk& other, int channel = -1);
  int scratch(std::int64_t chunks);
  compile::Trace& trace() { return trace_; }

 private:
  compile::Trace trace_;
};

compile::Trace ring_all_reduce(int ranks);
// Rank i adds chunk i of all, and sends the sum to all; `parallel` instances.
compile::Trace all_pairs_all_reduce(int ranks, int parallel = 1);
// Collected in the node before it crosses.
compile::Trace two_step_all_to_all(int nodes, int ranks_per_node);

}  // namespace unisono::test
