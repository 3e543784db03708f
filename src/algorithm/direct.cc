// All-gather and reduce-scatter by one message between each two ranks, all at once.
//
//   steps          1
//   bytes sent     (p - 1) b      b: bytes of a block
//   bytes reduced  (p - 1) b by the reduce-scatter, which adds in the order rank + 1, rank + 2, ...
//   cost           α + (p - 1) b β, with p - 1 connections busy at once
//
// Nothing that was sent is overwritten, no scratch, one slot per connection.
#include "algorithm/algorithms.h"
#include "algorithm/parts/cost_tally.h"
#include "algorithm/parts/exchange.h"
#include "algorithm/parts/group_collectives.h"
#include "algorithm/request.h"

namespace unisono::algorithm {

Ready write_direct_all_gather(Phase& phase, plan::Location own, const BlockMap& blocks) {
  const Group& group = phase.group;
  Ready ready = place_own_block(phase, own, blocks);
  for (int distance = 1; distance < group.size(); ++distance) {
    const int peer = group.member_at(group.me() + distance);
    ready = both(std::move(ready),
                 exchange(phase, phase.start, group.rank(peer), own_runs(blocks, group, own),
                          group.rank(peer), {.destination = blocks.runs(peer, 1)}));
  }
  return ready;
}

Ready write_direct_reduce_scatter(Phase& phase, const BlockMap& contributions,
                                  plan::Location result) {
  const Group& group = phase.group;
  const std::vector<Run> mine = own_runs(contributions, group);
  const std::vector<Run> sum = own_runs(contributions, group, result);
  if (group.size() == 1) {
    plan::BlockBuilder alone = phase.program.block(phase.channel, -1, -1);
    wait_for(alone, phase.start);
    copy_runs(alone, mine, sum);
    return {done(alone)};
  }
  Ready added;
  for (int distance = 1; distance < group.size(); ++distance) {
    const int peer = group.member_at(group.me() + distance);
    added = exchange(phase, phase.start, group.rank(peer), contributions.runs(peer, 1),
                     group.rank(peer),
                     {.destination = sum, .source = distance == 1 ? mine : sum, .ready = added});
  }
  return added;
}

namespace {

plan::Header header(const Request& request) { return group_header(request, 1); }

plan::RankProgram gather_program(const Request& request, int rank) {
  return all_gather_program(request, rank, write_direct_all_gather);
}
plan::RankProgram scatter_program(const Request& request, int rank) {
  return reduce_scatter_program(request, rank, write_direct_reduce_scatter);
}

Cost cost(const Request& request, double block_bytes) {
  const int ranks = request.placement.ranks();
  CostTally tally(request.placement);
  for (int rank = 0; rank < ranks; ++rank)
    for (int distance = 1; distance < ranks; ++distance)
      tally.send(rank, (rank + distance) % ranks, block_bytes);
  tally.end_phase();
  const bool adds = request.collective == Collective::reduce_scatter;
  return tally.total(adds ? block_bytes * (ranks - 1) : 0);
}

}  // namespace

const Entry direct_all_gather = {
    .name = "direct",
    .collective = Collective::all_gather,
    .summary = "Every rank sends its block to every other, all at once.",
    .source = "folklore",
    .constraint = "any number of ranks; each has a connection to every other",
    .supports = any_ranks,
    .header = header,
    .program = gather_program,
    .cost = cost,
    .symmetry = by_rotation,
};

const Entry direct_reduce_scatter = {
    .name = "direct",
    .collective = Collective::reduce_scatter,
    .summary = "Every rank gets its block from every other, and adds them in a fixed order.",
    .source = "folklore",
    .constraint = "any number of ranks; each has a connection to every other",
    .supports = any_ranks,
    .header = header,
    .program = scatter_program,
    .cost = cost,
    .symmetry = by_rotation,
};

}  // namespace unisono::algorithm
