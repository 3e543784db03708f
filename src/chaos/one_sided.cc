#include "chaos/one_sided.h"

#include <vector>

#include "plan/builder.h"
#include "plan/plan.h"
#include "plan/text.h"
#include "plan/walk.h"

namespace unisono::chaos {
namespace {

using plan::BlockBuilder;
using plan::input;
using plan::Operation;
using plan::output;
using plan::ProgramBuilder;
using plan::scratch;

plan::RankProgram put_block(int ranks, int rank) {
  constexpr int chunks = 2;
  ProgramBuilder program(rank);
  program.block(0, -1, -1).copy(input(0), output(rank * chunks), chunks);
  for (int step = 1; step < ranks; ++step) {
    BlockBuilder block = program.block(0, (rank + step) % ranks, (rank + ranks - step) % ranks);
    for (int chunk = 0; chunk < chunks; ++chunk)
      block.step({.operation = Operation::put,
                  .source = input(chunk),
                  .destination = output(rank * chunks + chunk)});
    block.step({.operation = Operation::signal});
    block.step({.operation = Operation::wait});
  }
  return program.take();
}

plan::RankProgram read_and_put_sum(int ranks, int rank) {
  ProgramBuilder program(rank);
  program.need_scratch(1);
  BlockBuilder sum = program.block(0, -1, -1);
  sum.copy(input(rank), scratch(rank));
  std::vector<int> peers;
  for (int step = 1; step < ranks; ++step) peers.push_back((rank + step) % ranks);
  sum.step({.operation = Operation::read_reduce,
            .source = input(rank),
            .destination = scratch(rank),
            .peers = peers});
  sum.copy(scratch(rank), output(rank));
  sum.step({.operation = Operation::barrier});
  for (const int peer : peers) {
    BlockBuilder block = program.block(0, peer, peer);
    block.step({.operation = Operation::barrier});
    block.step({.operation = Operation::put, .source = scratch(rank), .destination = output(rank)});
    block.step({.operation = Operation::signal});
    block.step({.operation = Operation::wait});
  }
  return program.take();
}

}  // namespace

std::string one_sided_plan(Collective collective, int ranks) {
  const bool gathers = collective == Collective::all_gather;
  plan::Plan out;
  out.header.name = gathers ? "put_all_gather" : "read_all_reduce";
  out.header.collective = collective;
  out.header.ranks = ranks;
  out.header.chunks_per_block = gathers ? 2 : ranks;
  plan::set_blocks(out.header);
  for (int rank = 0; rank < ranks; ++rank)
    out.programs.push_back(gathers ? put_block(ranks, rank) : read_and_put_sum(ranks, rank));
  out.header.max_step_count = plan::max_step_count(out);
  return plan::print(out);
}

}  // namespace unisono::chaos
