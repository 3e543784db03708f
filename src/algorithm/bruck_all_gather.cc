// Bruck all-gather: in step k every rank sends the first min(2^k, p - 2^k) blocks that it has, its
// own foremost, to rank - 2^k. (Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for
// all-to-all communications in multiport message-passing systems, 1997.)
//
//   steps          ceil(log2 p)
//   bytes sent     (p - 1) b      b: bytes of a block
//   bytes reduced  none
//   cost           ceil(log2 p) α + (p - 1) b β
//
// The classical form keeps blocks in the order rank, rank + 1, ... and rotates them at the end.
// Here every block goes to its final place at once, which saves the rotation and its memory, and
// a step whose blocks go round the end of the buffer takes two messages instead of one. Nothing
// that was sent is overwritten; one slot per connection.
//
// Where all blocks are contiguous, all ranks send and receive in one thread block: if
// only those did whose blocks do not go round the end, the others would run ahead of them and fill
// the links that both use. One slot is enough: who receives from a rank whose blocks go round is
// 2^k or more before the end, so that its own do not, and it comes to receive.
#include <algorithm>

#include "algorithm/algorithms.h"
#include "algorithm/parts/cost_tally.h"
#include "algorithm/parts/exchange.h"
#include "algorithm/parts/group_collectives.h"
#include "algorithm/parts/powers.h"
#include "algorithm/request.h"

namespace unisono::algorithm {
namespace {

int blocks_in_step(int step, int size) { return std::min(1 << step, size - (1 << step)); }

std::vector<Run> runs_from(const BlockMap& blocks, const Group& group, std::int64_t position,
                           int count) {
  std::vector<int> members;
  for (int i = 0; i < count; ++i) members.push_back(group.member_at(position + i));
  return blocks.runs(members);
}

Ready in_one_thread_block(Phase& phase, const Ready& start, int to, const std::vector<Run>& out,
                          int from, const std::vector<Run>& in) {
  plan::BlockBuilder block = phase.program.block(phase.channel, to, from);
  wait_for(block, start);
  send_runs(block, out);
  receive_runs(block, {.destination = in});
  return {done(block)};
}

}  // namespace

Ready write_bruck_all_gather(Phase& phase, plan::Location own, const BlockMap& blocks) {
  const Group& group = phase.group;
  const Ready placed = place_own_block(phase, own, blocks);
  Ready ready = phase.start;
  const bool joined = blocks.runs(0, group.size()).size() == 1;
  for (int step = 0; step < ceil_log2(group.size()); ++step) {
    const int distance = 1 << step;
    const int count = blocks_in_step(step, group.size());
    const std::vector<Run> out =
        step == 0 ? own_runs(blocks, group, own) : runs_from(blocks, group, group.me(), count);
    if (step > 0) ready = both(ready, placed);
    const std::vector<Run> in = runs_from(blocks, group, group.me() + distance, count);
    const int to = group.rank(group.member_at(group.me() - distance));
    const int from = group.rank(group.member_at(group.me() + distance));
    ready = joined && !out.empty() && !in.empty() && !phase.overlaps_tiles
                ? in_one_thread_block(phase, ready, to, out, from, in)
                : exchange(phase, ready, to, out, from, {.destination = in});
  }
  return both(ready, placed);
}

namespace {

plan::Header header(const Request& request) {
  const int ranks = request.placement.ranks();
  int most = 1;
  for (int step = 0; step < ceil_log2(ranks); ++step)
    most = std::max(most, blocks_in_step(step, ranks));
  return group_header(request, most);
}

plan::RankProgram program(const Request& request, int rank) {
  return all_gather_program(request, rank, write_bruck_all_gather);
}

// A run that goes round the end of the buffer is cut in two; with several channels, every block is
// a run.
Symmetry symmetry(const Request& request) {
  return request.channels > 1 ? Symmetry::rotation : Symmetry::none;
}

Cost cost(const Request& request, double block_bytes) {
  const int ranks = request.placement.ranks();
  CostTally tally(request.placement);
  for (int step = 0; step < ceil_log2(ranks); ++step) {
    for (int rank = 0; rank < ranks; ++rank)
      tally.send(rank, (rank - (1 << step) + ranks) % ranks,
                 block_bytes * blocks_in_step(step, ranks));
    tally.end_phase();
  }
  return tally.total(0);
}

}  // namespace

const Entry bruck_all_gather = {
    .name = "bruck",
    .collective = Collective::all_gather,
    .summary = "In step k every rank sends all that it has to the rank 2^k before.",
    .source = "Bruck, Ho, Kipnis, Upfal, Weathersby 1997",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header,
    .program = program,
    .cost = cost,
    .symmetry = symmetry,
};

}  // namespace unisono::algorithm
