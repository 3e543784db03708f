// Broadcast and reduce in two shots: every rank but the root has a segment of the block.
//
// Broadcast: the root sends each rank its segment, and each sends it on to all but the root.
//   steps 2, bytes sent n, by the root; n (p - 2) / (p - 1) by the others; cost
//   2 α + n (2p - 3) / (p - 1) β, for one tile; tiles follow each other
// Reduce: every rank sends the others their segments; each adds its own of all blocks, and sends
// the sum to the root.
//   steps 2, bytes sent n, bytes reduced n; cost as broadcast's
// With two ranks, where nobody else could add, the root has a segment, too, of three parts in five:
// what it does not add itself crosses the link twice.
//   steps 2, bytes sent n, bytes reduced 3/5 n; cost 2 α + n β
//
// Where a tree's root sends the block to each of its children, here it sends it once. A segment is
// added by one rank, from its own data on, in scratch (one block), as it may have no output.
// Nothing that was sent is overwritten; one slot per connection. (Van de Geijn's scatter and
// all-gather, over all pairs, without a segment for the root.)
#include <algorithm>
#include <optional>

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

// For a reduce of two ranks: chunks of a channel, and how many of them are the root's.
constexpr int chunks_of_pair = 5;
constexpr int root_chunks = 3;

// One rank's view of a channel.
struct Rooted {
  ProgramBuilder& builder;
  const Request& request;
  int rank;
  int channel;

  int ranks() const { return request.placement.ranks(); }
  bool is_root() const { return rank == request.root; }
  // The segment of a rank that is not the root: the distance from it, less 1.
  plan::Index segment(int owner) const {
    const int place = (owner - request.root - 1 + ranks()) % ranks();
    return std::int64_t{channel} * (ranks() - 1) + place;
  }
  int peer(int distance) const { return (rank + distance) % ranks(); }

  void broadcast_from_root() const {
    for (int distance = 1; distance < ranks(); ++distance) {
      const plan::Index theirs = segment(peer(distance));
      BlockBuilder give = builder.block(channel, peer(distance), -1);
      give.send(plan::input(theirs));
      if (!request.in_place) give.copy(plan::input(theirs), plan::output(theirs));
    }
  }
  void broadcast_on() const {
    const Location mine = plan::output(segment(rank));
    BlockBuilder take = builder.block(channel, -1, request.root);
    take.recv(mine);
    const Ready ready{done(take)};
    for (int distance = 1; distance < ranks(); ++distance) {
      if (peer(distance) == request.root) continue;
      BlockBuilder exchange = builder.block(channel, peer(distance), peer(distance));
      wait_for(exchange, ready);
      exchange.send(mine);
      exchange.recv(plan::output(segment(peer(distance))));
    }
  }
  // For a reduce of two ranks.
  plan::Index pair_chunk(int chunk) const { return std::int64_t{channel} * chunks_of_pair + chunk; }
  void reduce_pair_at_root() const {
    BlockBuilder block = builder.block(channel, peer(1), peer(1));
    const Location rest = plan::output(pair_chunk(root_chunks));
    block.send(plan::input(pair_chunk(root_chunks)), chunks_of_pair - root_chunks);
    block.recv_reduce_copy(plan::input(pair_chunk(0)), plan::output(pair_chunk(0)), root_chunks);
    block.recv(rest, chunks_of_pair - root_chunks);
  }
  void reduce_pair() const {
    BlockBuilder block = builder.block(channel, peer(1), peer(1));
    const Location sum = plan::scratch(pair_chunk(root_chunks));
    builder.need_scratch(1);
    block.send(plan::input(pair_chunk(0)), root_chunks);
    block.recv_reduce_copy(plan::input(pair_chunk(root_chunks)), sum, chunks_of_pair - root_chunks);
    block.send(sum, chunks_of_pair - root_chunks);
  }
  void reduce_to_root() const {
    for (int distance = 1; distance < ranks(); ++distance) {
      BlockBuilder exchange = builder.block(channel, peer(distance), peer(distance));
      exchange.send(plan::input(segment(peer(distance))));
      exchange.recv(plan::output(segment(peer(distance))));
    }
  }
  void reduce_on() const {
    const plan::Index mine = segment(rank);
    const Location sum = plan::scratch(mine);
    builder.need_scratch(1);
    Ready added;
    std::optional<BlockBuilder> with_root;
    for (int distance = 1; distance < ranks(); ++distance) {
      BlockBuilder block = builder.block(channel, peer(distance), peer(distance));
      const bool is_root = peer(distance) == request.root;
      if (!is_root) block.send(plan::input(segment(peer(distance))));
      wait_for(block, added);
      block.recv_reduce_copy(distance == 1 ? plan::input(mine) : sum, sum);
      added = {done(block)};
      if (is_root) with_root = block;
    }
    wait_for(*with_root, added);
    with_root->send(sum);
  }
};

void write(const Rooted& way) {
  if (way.ranks() == 1)
    way.builder.block(way.channel, -1, -1)
        .copy(plan::input(way.channel), plan::output(way.channel));
  else if (way.request.collective == Collective::broadcast)
    way.is_root() ? way.broadcast_from_root() : way.broadcast_on();
  else if (way.ranks() == 2)
    way.is_root() ? way.reduce_pair_at_root() : way.reduce_pair();
  else
    way.is_root() ? way.reduce_to_root() : way.reduce_on();
}

plan::RankProgram program(const Request& request, int rank) {
  ProgramBuilder builder(rank);
  for (int channel = 0; channel < request.channels; ++channel)
    write({builder, request, rank, channel});
  return builder.take();
}

plan::Header header(const Request& request) {
  const int ranks = request.placement.ranks();
  const bool is_pair = ranks == 2 && request.collective == Collective::reduce;
  return header_for(request, request.channels * (is_pair ? chunks_of_pair : std::max(ranks - 1, 1)),
                    is_pair ? root_chunks : 1);
}

Cost cost_of_pair(const Request& request, double block_bytes) {
  const int other = 1 - request.root;
  const double at_root = block_bytes * root_chunks / chunks_of_pair;
  CostTally tally(request.placement);
  tally.send(request.root, other, block_bytes - at_root);
  tally.send(other, request.root, at_root);
  tally.end_phase();
  tally.send(other, request.root, block_bytes - at_root);
  tally.end_phase();
  Cost cost = tally.total(at_root);
  cost.bytes_sent = block_bytes;
  return cost;
}

Cost cost(const Request& request, double block_bytes) {
  const int ranks = request.placement.ranks();
  const int root = request.root;
  const bool adds = request.collective == Collective::reduce;
  if (adds && ranks == 2) return cost_of_pair(request, block_bytes);
  const double segment_bytes = ranks > 1 ? block_bytes / (ranks - 1) : block_bytes;
  CostTally tally(request.placement);
  // For a broadcast; a reduce has the same messages the other way and in the other order.
  const auto send = [&](int from, int to) {
    tally.send(adds ? to : from, adds ? from : to, segment_bytes);
  };
  const auto between_root_and_all = [&] {
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != root) send(root, rank);
    tally.end_phase();
  };
  if (!adds) between_root_and_all();
  // Into a sum goes the root's data, too.
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to)
      if (from != to && to != root && (from != root || adds)) tally.send(from, to, segment_bytes);
  tally.end_phase();
  if (adds) between_root_and_all();
  Cost cost = tally.total(adds && ranks > 1 ? block_bytes : 0);
  if (ranks > 1) cost.bytes_sent = block_bytes;  // its segments, whose sum is rounded
  return cost;
}

}  // namespace

const Entry two_shot_broadcast = {
    .name = "two_shot",
    .collective = Collective::broadcast,
    .summary = "The root sends each rank a segment, and each sends it on to all others.",
    .source = "van de Geijn's scatter and all-gather, over all pairs",
    .constraint = "any number of ranks, any root; each has a connection to every other",
    .supports = any_ranks,
    .header = header,
    .program = program,
    .cost = cost,
};

const Entry two_shot_reduce = {
    .name = "two_shot",
    .collective = Collective::reduce,
    .summary =
        "Every rank but the root adds one segment of all blocks, and sends the root the sum.",
    .source = "van de Geijn's reduce-scatter and gather, over all pairs",
    .constraint = "any number of ranks, any root; each has a connection to every other",
    .supports = any_ranks,
    .header = header,
    .program = program,
    .cost = cost,
};

}  // namespace unisono::algorithm
