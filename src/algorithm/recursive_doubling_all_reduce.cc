// Recursive doubling all-reduce: in step k every rank exchanges its whole partial result with the
// rank whose number differs in bit k, and both add. (Thakur, Rabenseifner, Gropp: Optimization of
// Collective Communication Operations in MPICH, 2005, section 4.) For p not a power of two,
// rem = p - 2^m even ranks are folded into their neighbours before and get the result after.
//
//   steps            m = floor(log2 p), + 1 if p is no power of two, + 2 if 2 rem > 2^m: only then
//                    is there a pair of ranks that act for two and have all m exchanges between
//                    them
//   bytes sent       n m by each rank of the core, + n by those that act for two
//   bytes reduced    n m, + n by those that act for two
//   cost             (m + 2 [rem > 0]) (α + n β), at most
//
// Both partners of an exchange compute a + b and b + a, which are the same bits, so all ranks end
// with the same ones. No step overwrites what it has just sent: partial results alternate
// between output and scratch, so a zero-copy send waits only for an earlier step of the partner.
// One slot per connection is enough.
#include "algorithm/algorithms.h"
#include "algorithm/parts/cost_tally.h"
#include "algorithm/parts/group.h"
#include "algorithm/parts/powers.h"
#include "algorithm/request.h"
#include "plan/builder.h"

namespace unisono::algorithm {
namespace {

using plan::BlockBuilder;
using plan::Location;
using plan::ProgramBuilder;

// Where the partial results of a rank that receives `receives` times stand: number 0 is the raw
// input, the last one the output.
class PartialResults {
 public:
  PartialResults(int receives, int chunk) : receives_(receives), chunk_(chunk) {}
  Location at(int number) const {
    if (number == 0) return plan::input(chunk_);
    return (receives_ - number) % 2 == 0 ? plan::output(chunk_) : plan::scratch(chunk_);
  }

 private:
  int receives_;
  int chunk_;
};

void write_folded(ProgramBuilder& builder, int rank, int channel) {
  BlockBuilder give = builder.block(channel, rank + 1, -1);
  give.send(plan::input(channel));
  BlockBuilder take = builder.block(channel, -1, rank + 1);
  take.after(give).recv(plan::output(channel));
}

void write_core(ProgramBuilder& builder, const Request& request, const Fold& fold, int rank,
                int channel) {
  const bool for_two = fold.acts_for_two(rank);
  const PartialResults partial(fold.bits + (for_two ? 1 : 0), channel);
  builder.need_scratch(1);

  int number = 0;
  Ready ready;
  if (for_two) {
    BlockBuilder take = builder.block(channel, -1, rank - 1);
    take.recv_reduce_copy(partial.at(number), partial.at(number + 1));
    ready = {done(take)};
    number = 1;
  }
  // In place and with an odd number of exchanges the first would overwrite the input that it sends.
  const bool send_copy = !for_two && request.in_place && fold.bits % 2 == 1;

  const int index = fold.index_of(rank);
  for (int bit = 0; bit < fold.bits; ++bit, ++number) {
    const int peer = fold.rank_of(index ^ (1 << bit));
    BlockBuilder exchange = builder.block(channel, peer, peer);
    wait_for(exchange, ready);
    if (send_copy && number == 0) {
      exchange.copy(plan::input(channel), plan::scratch(channel));
      exchange.send(plan::scratch(channel));
    } else {
      exchange.send(partial.at(number));
    }
    exchange.recv_reduce_copy(partial.at(number), partial.at(number + 1));
    ready = {done(exchange)};
  }
  if (!for_two) return;
  BlockBuilder give = builder.block(channel, rank - 1, -1);
  wait_for(give, ready);
  give.send(plan::output(channel));
}

plan::Header header(const Request& request) { return header_for(request, request.channels); }

plan::RankProgram program(const Request& request, int rank) {
  ProgramBuilder builder(rank);
  const Fold fold(request.placement.ranks());
  for (int channel = 0; channel < request.channels; ++channel) {
    if (fold.size == 1)
      builder.block(channel, -1, -1).copy(plan::input(channel), plan::output(channel));
    else if (fold.is_folded(rank))
      write_folded(builder, rank, channel);
    else
      write_core(builder, request, fold, rank, channel);
  }
  return builder.take();
}

Cost cost(const Request& request, double block_bytes) {
  const Fold fold(request.placement.ranks());
  CostTally tally(request.placement);
  for (int i = 0; i < fold.remainder; ++i) tally.send(2 * i, 2 * i + 1, block_bytes);
  tally.end_phase();
  for (int bit = 0; bit < fold.bits; ++bit) {
    for (int index = 0; index < fold.size; ++index)
      tally.send(fold.rank_of(index), fold.rank_of(index ^ (1 << bit)), block_bytes);
    tally.end_phase();
  }
  for (int i = 0; i < fold.remainder; ++i) tally.send(2 * i + 1, 2 * i, block_bytes);
  tally.end_phase();
  Cost cost = tally.total(block_bytes * (fold.bits + (fold.remainder > 0 ? 1 : 0)));
  if (fold.remainder > 0) cost.steps = fold.bits + (2 * fold.remainder > fold.size ? 2 : 1);
  cost.steps_inter_node = std::min(cost.steps_inter_node, cost.steps);
  return cost;
}

}  // namespace

const Entry recursive_doubling_all_reduce = {
    .name = "recursive_doubling",
    .collective = Collective::all_reduce,
    .summary = "Pairs at distances 1, 2, 4, ... exchange and add whole partial results.",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4",
    .constraint = "any number of ranks; p - 2^m of them are folded when p is no power of two",
    .supports = any_ranks,
    .header = header,
    .program = program,
    .cost = cost,
    .symmetry = by_exclusive_or,
};

}  // namespace unisono::algorithm
