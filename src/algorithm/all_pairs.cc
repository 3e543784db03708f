// All-reduce with a message between each two ranks, in one shot or two.
//
// One shot: every rank sends its whole block to all others, and adds all blocks itself.
//   steps 1, bytes sent (p - 1) n, bytes reduced (p - 1) n, cost α + (p - 1) n β
// Two shots: rank i adds segment i of all blocks, and sends the sum to all others.
//   steps 2, bytes sent 2 n (p - 1) / p, bytes reduced n (p - 1) / p, cost
//   2 α + 2 n (p - 1) / p β
//
// With one shot every rank adds in the same order, ((x0 + x1) + x2) + ..., so that all get the same
// bits; with two, a segment is added by one rank. In place, one shot adds in scratch (one block)
// and copies last: the input is being sent until all have taken it, and nobody's taking may wait
// for that. With two shots only results overwrite what was sent, and those come from the rank that
// has taken it. One slot per connection. (All pairs in Cowan et al.: MSCCLang, 2023.)
#include "algorithm/algorithms.h"
#include "algorithm/parts/cost_tally.h"
#include "algorithm/parts/group.h"
#include "algorithm/request.h"
#include "plan/builder.h"

namespace unisono::algorithm {
namespace {

using plan::BlockBuilder;
using plan::Location;
using plan::ProgramBuilder;

// Adds the blocks of ranks 0, 1, ... in this order, wherever this rank is among them.
void write_one_shot(ProgramBuilder& builder, const Request& request, int rank, int channel) {
  const int ranks = request.placement.ranks();
  const Location raw = plan::input(channel);
  const Location sum = request.in_place ? plan::scratch(channel) : plan::output(channel);
  if (request.in_place) builder.need_scratch(1);
  Ready added;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    BlockBuilder block = builder.block(channel, peer, peer);
    block.send(raw);
    wait_for(block, added);
    const bool is_first = added.empty();
    if (!is_first)
      block.recv_reduce_copy(sum, sum);
    else if (rank <= 1)
      block.recv_reduce_copy(raw, sum);
    else
      block.recv(sum);
    // After the blocks of all ranks before this one comes its own; a sum of two has no order.
    if (rank >= 2 && peer == rank - 1) block.reduce(raw, sum);
    added = {done(block)};
  }
  if (!request.in_place) return;
  BlockBuilder last = builder.block(channel, -1, -1);
  wait_for(last, added);
  last.copy(sum, plan::output(channel));
}

// Segment i of channel c is chunk c p + i.
void write_two_shots(ProgramBuilder& builder, const Request& request, int rank, int channel) {
  const int ranks = request.placement.ranks();
  const auto segment = [&](int owner) { return std::int64_t{channel} * ranks + owner; };
  const plan::Index mine = segment(rank);
  std::vector<BlockBuilder> blocks;
  Ready added;
  for (int distance = 1; distance < ranks; ++distance) {
    const int peer = (rank + distance) % ranks;
    BlockBuilder block = builder.block(channel, peer, peer);
    block.send(plan::input(segment(peer)));
    wait_for(block, added);
    block.recv_reduce_copy(distance == 1 ? plan::input(mine) : plan::output(mine),
                           plan::output(mine));
    added = {done(block)};
    blocks.push_back(block);
  }
  for (int distance = 1; distance < ranks; ++distance) {
    BlockBuilder& block = blocks[static_cast<std::size_t>(distance - 1)];
    wait_for(block, added);
    block.send(plan::output(mine));
    block.recv(plan::output(segment((rank + distance) % ranks)));
  }
}

void write_alone(ProgramBuilder& builder, int channel) {
  builder.block(channel, -1, -1).copy(plan::input(channel), plan::output(channel));
}

plan::Header one_shot_header(const Request& request) {
  return header_for(request, request.channels);
}
plan::Header two_shots_header(const Request& request) {
  return header_for(request, request.channels * request.placement.ranks());
}

template <auto write>
plan::RankProgram program(const Request& request, int rank) {
  ProgramBuilder builder(rank);
  for (int channel = 0; channel < request.channels; ++channel) {
    if (request.placement.ranks() == 1)
      write_alone(builder, channel);
    else
      write(builder, request, rank, channel);
  }
  return builder.take();
}

// Messages of `bytes` between each two ranks, `times` times.
CostTally tally(const Request& request, double bytes, int times) {
  const int ranks = request.placement.ranks();
  CostTally tally(request.placement);
  for (int time = 0; time < times; ++time) {
    for (int rank = 0; rank < ranks; ++rank)
      for (int distance = 1; distance < ranks; ++distance)
        tally.send(rank, (rank + distance) % ranks, bytes);
    tally.end_phase();
  }
  return tally;
}

Cost one_shot_cost(const Request& request, double block_bytes) {
  return tally(request, block_bytes, 1).total(block_bytes * (request.placement.ranks() - 1));
}

Cost two_shots_cost(const Request& request, double block_bytes) {
  const int ranks = request.placement.ranks();
  const double segment_bytes = block_bytes / ranks;
  return tally(request, segment_bytes, 2).total(segment_bytes * (ranks - 1));
}

}  // namespace

const Entry all_pairs_one_shot_all_reduce = {
    .name = "one_shot",
    .collective = Collective::all_reduce,
    .summary = "Every rank sends its whole block to all others, and adds all blocks itself.",
    .source = "Cowan et al. 2023 (MSCCLang), all pairs",
    .constraint = "any number of ranks; each has a connection to every other",
    .supports = any_ranks,
    .header = one_shot_header,
    .program = program<write_one_shot>,
    .cost = one_shot_cost,
};

const Entry all_pairs_two_shot_all_reduce = {
    .name = "two_shot",
    .collective = Collective::all_reduce,
    .summary = "Every rank adds one segment of all blocks, and sends the sum to all others.",
    .source = "Cowan et al. 2023 (MSCCLang), all pairs",
    .constraint = "any number of ranks; each has a connection to every other",
    .supports = any_ranks,
    .header = two_shots_header,
    .program = program<write_two_shots>,
    .cost = two_shots_cost,
    .symmetry = by_rotation,
};

}  // namespace unisono::algorithm
