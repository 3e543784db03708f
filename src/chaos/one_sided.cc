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
using plan::output;
using plan::ProgramBuilder;
using plan::scratch;

constexpr int put_chunks = 2;

// Each chunk is put from a place that another rank's overwrites when it has come.
plan::RankProgram put_block(int ranks, int rank) {
  constexpr int chunks = put_chunks;
  ProgramBuilder program(rank);
  program.need_scratch(ranks - 1);
  program.block(0, -1, -1).copy(input(0), output(rank * chunks), chunks);
  for (int step = 1; step < ranks; ++step) {
    const int from = (rank + ranks - step) % ranks;
    const int place = (step - 1) * chunks;
    BlockBuilder block = program.block(0, (rank + step) % ranks, from);
    block.copy(input(0), scratch(place), chunks);
    for (int chunk = 0; chunk < chunks; ++chunk)
      block.step({.operation = plan::Operation::put,
                  .source = scratch(place + chunk),
                  .destination = output(rank * chunks + chunk)});
    block.step({.operation = plan::Operation::signal});
    block.step({.operation = plan::Operation::wait});
    block.copy(output(from * chunks), scratch(place), chunks);
  }
  return program.take();
}

plan::RankProgram read_and_put_sum(int ranks, int rank) {
  ProgramBuilder program(rank);
  program.need_scratch(2);
  BlockBuilder sum = program.block(0, -1, -1);
  sum.copy(input(rank), scratch(rank));
  std::vector<int> peers;
  for (int step = 1; step < ranks; ++step) peers.push_back((rank + step) % ranks);
  sum.step({.operation = plan::Operation::read_reduce,
            .source = input(rank),
            .destination = scratch(rank),
            .peers = peers});
  sum.copy(scratch(rank), output(rank));
  sum.step({.operation = plan::Operation::barrier});
  for (const int peer : peers) {
    BlockBuilder block = program.block(0, peer, peer);
    block.step({.operation = plan::Operation::barrier});
    block.step({.operation = plan::Operation::put,
                .source = scratch(rank),
                .destination = scratch(ranks + rank)});
    block.step({.operation = plan::Operation::signal});
    block.step({.operation = plan::Operation::wait});
    block.copy(scratch(ranks + peer), output(peer));
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
  out.header.chunks_per_block = gathers ? put_chunks : ranks;
  plan::set_blocks(out.header);
  for (int rank = 0; rank < ranks; ++rank)
    out.programs.push_back(gathers ? put_block(ranks, rank) : read_and_put_sum(ranks, rank));
  out.header.max_step_count = plan::max_step_count(out);
  return plan::print(out);
}

}  // namespace unisono::chaos
