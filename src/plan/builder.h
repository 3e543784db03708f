// Writing programs in C++: what the algorithms use.
#pragma once

#include "plan/plan.h"

namespace unisono::plan {

inline Location input(Index index) { return {Buffer::input, index}; }
inline Location output(Index index) { return {Buffer::output, index}; }
inline Location scratch(Index index) { return {Buffer::scratch, index}; }

// offset + scale * ((base + coefficient * i) mod modulus), i the outermost loop's variable.
Index affine(std::int64_t base, std::int64_t coefficient, std::int64_t modulus = 0,
             std::int64_t scale = 1, std::int64_t offset = 0);

// Appends steps to one thread block. Every function returns the number of steps the thread
// block has afterwards (unrolled, valid outside loops): what another one waits for with after().
class BlockBuilder {
 public:
  BlockBuilder(RankProgram& program, std::size_t thread_block);

  int index() const { return static_cast<int>(thread_block_); }
  std::int64_t steps() const { return steps_; }

  // The next step waits until `thread_block` has completed `steps` steps. Steps 0: no effect.
  BlockBuilder& after(int thread_block, Index steps);
  BlockBuilder& after(const BlockBuilder& other) { return after(other.index(), other.steps()); }

  std::int64_t send(Location source, int count = 1);
  std::int64_t recv(Location destination, int count = 1);
  std::int64_t copy(Location source, Location destination, int count = 1);
  std::int64_t reduce(Location source, Location destination, int count = 1);
  std::int64_t copy_send(Location source, Location destination, int count = 1);
  std::int64_t recv_copy_send(Location destination, int count = 1);
  std::int64_t recv_reduce_copy(Location source, Location destination, int count = 1);
  std::int64_t recv_reduce_send(Location source, int count = 1);
  std::int64_t recv_reduce_copy_send(Location source, Location destination, int count = 1);
  std::int64_t step(Step step);

  // loop(n) ... end_loop(); nests up to max_loop_depth. A loop of 0 iterations leaves nothing.
  void loop(std::int64_t count);
  void end_loop();

 private:
  Body& body();

  RankProgram* program_;
  std::size_t thread_block_;
  std::vector<Dependency> pending_;
  std::vector<Loop> open_;
  std::int64_t steps_ = 0;
};

// Adds thread blocks to one rank's program.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(int rank) { program_.rank = rank; }

  // A thread block on `channel`, sending to and receiving from the given peers (-1: none). The
  // returned builder stays valid until the program is taken.
  BlockBuilder block(int channel, int send_peer, int recv_peer);
  // At least this many scratch blocks.
  void need_scratch(int blocks);
  RankProgram take() { return std::move(program_); }

 private:
  RankProgram program_;
};

}  // namespace unisono::plan
