// Dissemination barrier: in round k every rank sends a token to rank + 2^k and takes one from
// rank - 2^k. (Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988.)
//
//   steps      ceil(log2 p)
//   bytes      one token of an element in each step
//   cost       ceil(log2 p) α
//
// Only the order counts: what round k sends follows what round k - 1 received, so it speaks for
// the 2^k ranks up to the sender. Scratch block 0 is the token, of any value; scratch block 1 is
// where tokens arrive. One channel carries it, and one slot is enough.
#include "algorithm/algorithms.h"
#include "algorithm/parts/cost_tally.h"
#include "algorithm/parts/group.h"
#include "algorithm/parts/powers.h"
#include "algorithm/request.h"
#include "plan/builder.h"

namespace unisono::algorithm {
namespace {

plan::Header header(const Request& request) {
  plan::Header header = header_for(request, 1);
  header.channels = 1;
  return header;
}

plan::RankProgram program(const Request& request, int rank) {
  const int ranks = request.placement.ranks();
  plan::ProgramBuilder builder(rank);
  builder.need_scratch(2);
  Ready ready;
  for (int round = 0; round < ceil_log2(ranks); ++round) {
    const int distance = 1 << round;
    plan::BlockBuilder exchange =
        builder.block(0, (rank + distance) % ranks, (rank - distance + ranks) % ranks);
    wait_for(exchange, ready);
    exchange.send(plan::scratch(0));
    exchange.recv(plan::scratch(1));
    ready = {done(exchange)};
  }
  return builder.take();
}

Cost cost(const Request& request, double block_bytes) {
  const int ranks = request.placement.ranks();
  CostTally tally(request.placement);
  for (int round = 0; round < ceil_log2(ranks); ++round) {
    for (int rank = 0; rank < ranks; ++rank)
      tally.send(rank, (rank + (1 << round)) % ranks, block_bytes);
    tally.end_phase();
  }
  return tally.total(0);
}

}  // namespace

const Entry dissemination_barrier = {
    .name = "dissemination",
    .collective = Collective::barrier,
    .summary = "In round k every rank sends a token to the rank 2^k further.",
    .source = "Hensgen, Finkel, Manber 1988",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header,
    .program = program,
    .cost = cost,
    .symmetry = by_rotation,
};

}  // namespace unisono::algorithm
