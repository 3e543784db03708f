// Rabenseifner's all-reduce: a reduce-scatter by recursive halving, then an all-gather by recursive
// doubling. (Rabenseifner: Optimization of collective reduction operations, 2004; Thakur,
// Rabenseifner, Gropp 2005, section 4.5.)
//
//   steps          2 ceil(log2 p)
//   bytes sent     2 n (p - 1) / p, p a power of two; else somewhat more by the ranks that serve
//                  the odd ones
//   bytes reduced  n (p - 1) / p, also by it
//   cost           2 ceil(log2 p) α + 2 n (p - 1) / p β
//
// The block falls into p segments for each channel. Where p is no power of two the classical form
// folds rem = p - 2^m ranks into others, which costs two steps of n bytes; here halves differ by
// one instead (halving.h), and nothing has the whole of n to carry.
//
// Every segment is added by one rank, so all ranks get the same bits. Partial sums stand in the
// output. The all-gather overwrites what the reduce-scatter sent to the same partner, who has
// taken it before it can give the result. A pair of ranks meets in both phases, so each phase has
// its own channels (2 c and 2 c + 1). One slot per connection.
#include "algorithm/algorithms.h"
#include "algorithm/parts/group_collectives.h"
#include "algorithm/parts/recursive_cost.h"
#include "algorithm/request.h"

namespace unisono::algorithm {
namespace {

plan::Header header(const Request& request) {
  const int ranks = request.placement.ranks();
  plan::Header header = header_for(request, ranks * request.channels, (ranks + 1) / 2);
  header.channels = 2 * request.channels;
  return header;
}

plan::RankProgram program(const Request& request, int rank) {
  const int ranks = request.placement.ranks();
  const Group group = Group::all(ranks, rank);
  plan::ProgramBuilder builder(rank);
  for (int channel = 0; channel < request.channels; ++channel) {
    const std::int64_t first = std::int64_t{channel} * ranks;
    const BlockMap raw = BlockMap::strided(plan::Buffer::input, first, 1, 1);
    const BlockMap sums = BlockMap::strided(plan::Buffer::output, first, 1, 1);
    Phase scatter{.program = builder, .group = group, .channel = 2 * channel};
    scatter.chunks_per_block = ranks * request.channels;
    Phase gather = scatter;
    gather.channel = 2 * channel + 1;
    gather.start = write_recursive_reduce_scatter(scatter, raw, sums.at(rank), &sums);
    write_recursive_all_gather(gather, sums.at(rank), sums);
  }
  return builder.take();
}

Cost cost(const Request& request, double block_bytes) {
  const int ranks = request.placement.ranks();
  const Group group = Group::all(ranks, 0);
  CostTally tally(request.placement);
  const double reduced = tally_recursive_reduce_scatter(tally, group, block_bytes / ranks);
  tally_recursive_all_gather(tally, group, block_bytes / ranks);
  return tally.total(reduced);
}

}  // namespace

const Entry rabenseifner_all_reduce = {
    .name = "rabenseifner",
    .collective = Collective::all_reduce,
    .summary = "Reduce-scatter by recursive halving, then all-gather by recursive doubling.",
    .source = "Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005, section 4.5",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header,
    .program = program,
    .cost = cost,
    .symmetry = by_exclusive_or,
};

}  // namespace unisono::algorithm
