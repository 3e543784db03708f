// Ring reduce-scatter: the partial sum of every block goes around the ring and ends at its owner.
// (Primitives as Table VII of "Demystifying NCCL".) Block j stands for the block of the rank at
// position j.
//
//   step 0            send               block q-1          q: this rank's position
//   steps 1 .. k-2    recv_reduce_send   block q-1-step     k: the number of ranks
//   step k-1          recv_reduce_copy   block q
//
//   steps          k-1
//   bytes sent     (k-1) b             b: bytes of a block
//   bytes reduced  (k-1) b
//   cost           (k-1) (α + b β + b γ)
//
// Only the own block is written, in the last step, and it is never sent. Two slots per connection,
// as in ring_all_gather.cc. The bidirectional ring sends half of every block the other way round;
// its direction is the lowest bit of the channel.
#include "algorithm/algorithms.h"
#include "algorithm/parts/ring_collectives.h"
#include "algorithm/parts/ring_cost.h"
#include "algorithm/parts/ring_walk.h"
#include "algorithm/request.h"
#include "plan/builder.h"

namespace unisono::algorithm {
namespace {

using plan::input;
using plan::output;

void write_ring(plan::ProgramBuilder& builder, const Ring& ring, const Request&, int rank,
                int channel, int channels) {
  const int k = ring.size();
  const std::int64_t q = ring.position_of(rank);
  const auto chunk_of = [&](int owner) { return std::int64_t{owner} * channels + channel; };
  plan::BlockBuilder block = builder.block(channel, ring.rank_at(q + 1), ring.rank_at(q - 1));
  block.send(input(chunk_of(ring.rank_at(q - 1))));
  write_walk(block, ring, q - 2, k - 2,
             {plan::Operation::recv_reduce_send, plan::Buffer::input, channel, channels});
  block.recv_reduce_copy(input(chunk_of(rank)), output(channel));
}

template <int directions>
plan::Header header(const Request& request) {
  return ring_header(request, directions, 1);
}

template <int directions>
plan::RankProgram program(const Request& request, int rank) {
  return ring_program(request, rank, directions, write_ring);
}

template <int directions>
Cost cost(const Request& request, double block_bytes) {
  const std::int64_t hops = request.placement.ranks() - 1;
  const double bytes = static_cast<double>(hops) * block_bytes;
  return ring_cost(request, directions, hops, bytes, bytes);
}

}  // namespace

const Entry ring_reduce_scatter = {
    .name = "ring",
    .collective = Collective::reduce_scatter,
    .summary = "The partial sum of every block goes around a ring and ends at its owner.",
    .source = "Demystifying NCCL, Table VII",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header<1>,
    .program = program<1>,
    .cost = cost<1>,
    .symmetry = by_rotation,
    .passes_on = true,
};

const Entry bidirectional_ring_reduce_scatter = {
    .name = "bidirectional_ring",
    .collective = Collective::reduce_scatter,
    .summary = "Half of every block's partial sums go around a ring, the others the other way.",
    .source = "Demystifying NCCL, Table VII, in both directions",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header<2>,
    .program = program<2>,
    .cost = cost<2>,
    .symmetry = by_rotation,
    .passes_on = true,
};

}  // namespace unisono::algorithm
