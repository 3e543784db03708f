// Recursive doubling all-gather with the farthest partner first, and reduce-scatter by vector
// halving and distance doubling: the small messages go far, the large ones go near. (Thakur,
// Rabenseifner, Gropp 2005, sections 4.1 and 4.4, with the distances the other way round.)
//
//   steps          ceil(log2 p)
//   bytes sent     (p - 1) b      b: bytes of a block, p a power of two; else as in recursive.cc
//   bytes reduced  (p - 1) b      by the reduce-scatter
//   cost           ceil(log2 p) α + (p - 1) b β, and p blocks copied in memory
//
// Both are recursive.cc's over the ranks in bit-reversed order: the halves of the whole are the
// even and the odd ranks, neighbours in that order are p/2 apart. To have the blocks of a message
// contiguous, the reduce-scatter copies all contributions to scratch in that order first, and the
// all-gather gathers there and copies to the output last (p scratch blocks). With several channels
// blocks are not contiguous anyway, and every block is a message from and to its place.
// One slot per connection.
#include <algorithm>
#include <numeric>

#include "algorithm/algorithms.h"
#include "algorithm/parts/exchange.h"
#include "algorithm/parts/group_collectives.h"
#include "algorithm/parts/powers.h"
#include "algorithm/parts/recursive_cost.h"
#include "algorithm/request.h"

namespace unisono::algorithm {
namespace {

// All ranks, sorted by their bits read backwards.
Group bit_reversed(int ranks, int rank) {
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  const int bits = ceil_log2(ranks);
  std::ranges::sort(order, {}, [bits](int other) { return reverse_bits(other, bits); });
  const auto me = std::ranges::find(order, rank) - order.begin();
  return Group::of(std::move(order), static_cast<int>(me));
}

// The blocks of `buffer`, by member of the group, on one channel.
BlockMap in_group_order(const Group& group, plan::Buffer buffer, int channels, int channel) {
  std::vector<std::int64_t> first;
  for (int member = 0; member < group.size(); ++member)
    first.push_back(std::int64_t{group.rank(member)} * channels + channel);
  return BlockMap::table(buffer, std::move(first),
                         std::vector<int>(static_cast<std::size_t>(group.size()), 1));
}

Ready copy_blocks(Phase& phase, const BlockMap& from, const BlockMap& to) {
  plan::BlockBuilder block = phase.program.block(phase.channel, -1, -1);
  wait_for(block, phase.start);
  for (int member = 0; member < phase.group.size(); ++member)
    block.copy(from.at(member), to.at(member));
  return {done(block)};
}

plan::Header header(const Request& request) {
  return group_header(request, (request.placement.ranks() + 1) / 2);
}

plan::RankProgram gather_program(const Request& request, int rank) {
  const int channels = request.channels;
  const Group group = bit_reversed(request.placement.ranks(), rank);
  plan::ProgramBuilder builder(rank);
  for (int channel = 0; channel < channels; ++channel) {
    Phase phase{.program = builder, .group = group, .channel = channel};
    const BlockMap output = in_group_order(group, plan::Buffer::output, channels, channel);
    const plan::Location own = request.in_place ? output.at(group.me()) : plan::input(channel);
    if (channels > 1 || group.size() == 1) {
      write_recursive_all_gather(phase, own, output);
      continue;
    }
    builder.need_scratch(group.size());
    const BlockMap gathered = BlockMap::strided(plan::Buffer::scratch, 0, 1, 1);
    phase.start = write_recursive_all_gather(phase, own, gathered);
    copy_blocks(phase, gathered, output);
  }
  return builder.take();
}

plan::RankProgram scatter_program(const Request& request, int rank) {
  const int channels = request.channels;
  const Group group = bit_reversed(request.placement.ranks(), rank);
  plan::ProgramBuilder builder(rank);
  for (int channel = 0; channel < channels; ++channel) {
    Phase phase{.program = builder, .group = group, .channel = channel};
    phase.chunks_per_block = channels;
    const BlockMap input = in_group_order(group, plan::Buffer::input, channels, channel);
    if (channels > 1 || group.size() == 1) {
      write_recursive_reduce_scatter(phase, input, plan::output(channel));
      continue;
    }
    builder.need_scratch(group.size());
    const BlockMap sums = BlockMap::strided(plan::Buffer::scratch, 0, 1, 1);
    phase.start = copy_blocks(phase, input, sums);
    write_recursive_reduce_scatter(phase, sums, plan::output(channel), &sums);
  }
  return builder.take();
}

// In addition to the steps of recursive.cc.
Cost with_copies(Cost cost, const Request& request, double block_bytes) {
  const int ranks = request.placement.ranks();
  if (request.channels == 1 && ranks > 1) cost.bytes_copied = ranks * block_bytes;
  return cost;
}

Cost gather_cost(const Request& request, double block_bytes) {
  CostTally tally(request.placement);
  tally_recursive_all_gather(tally, bit_reversed(request.placement.ranks(), 0), block_bytes);
  return with_copies(tally.total(0), request, block_bytes);
}

Cost scatter_cost(const Request& request, double block_bytes) {
  CostTally tally(request.placement);
  const double reduced = tally_recursive_reduce_scatter(
      tally, bit_reversed(request.placement.ranks(), 0), block_bytes);
  return with_copies(tally.total(reduced), request, block_bytes);
}

}  // namespace

const Entry recursive_doubling_all_gather_far = {
    .name = "recursive_doubling_far",
    .collective = Collective::all_gather,
    .summary = "Pairs at distances p/2, p/4, ..., 1 exchange all blocks that they have.",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4.1, distances reversed",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header,
    .program = gather_program,
    .cost = gather_cost,
    .symmetry = by_exclusive_or,
};

const Entry recursive_halving_reduce_scatter = {
    .name = "recursive_halving",
    .collective = Collective::reduce_scatter,
    .summary =
        "Pairs at distances 1, 2, 4, ... exchange sums of half, a quarter, ... of all blocks.",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4.4",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header,
    .program = scatter_program,
    .cost = scatter_cost,
    .symmetry = by_exclusive_or,
};

}  // namespace unisono::algorithm
