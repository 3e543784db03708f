// Ring all-gather: every block goes once around the ring. (Primitives as Table VI of
// "Demystifying NCCL".) Block j stands for the block of the rank at position j.
//
//   step 0            copy_send        block q          q: this rank's position
//                     (in place: send)
//   steps 1 .. k-2    recv_copy_send   block q-step     k: the number of ranks
//   step k-1          recv             block q+1
//
//   steps          k-1
//   bytes sent     (k-1) b             b: bytes of a block
//   bytes reduced  none
//   cost           (k-1) (α + b β)
//
// Nothing is written twice or after it was sent. Two slots per connection: a step that receives and
// sends keeps the slot of what it receives until it has one for what it sends, and with one slot
// all ranks would wait for each other so.
//
// The bidirectional ring sends half of every block the other way round; its direction is the lowest
// bit of the channel.
//
// Where ranks are numbered node after node, or round robin, a ring of any length is a few loops;
// with other placements each block takes its own step.
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

void write_ring(plan::ProgramBuilder& builder, const Ring& ring, const Request& request, int rank,
                int channel, int channels) {
  const int k = ring.size();
  const std::int64_t q = ring.position_of(rank);
  const auto chunk_of = [&](int owner) { return std::int64_t{owner} * channels + channel; };
  plan::BlockBuilder block = builder.block(channel, ring.rank_at(q + 1), ring.rank_at(q - 1));
  if (request.in_place)
    block.send(input(channel));
  else
    block.copy_send(input(channel), output(chunk_of(rank)));
  write_walk(block, ring, q - 1, k - 2,
             {plan::Operation::recv_copy_send, plan::Buffer::output, channel, channels});
  block.recv(output(chunk_of(ring.rank_at(q + 1))));
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
  return ring_cost(request, directions, hops, static_cast<double>(hops) * block_bytes, 0);
}

}  // namespace

const Entry ring_all_gather = {
    .name = "ring",
    .collective = Collective::all_gather,
    .summary = "Every block goes once around a ring.",
    .source = "Demystifying NCCL, Table VI",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header<1>,
    .program = program<1>,
    .cost = cost<1>,
    .symmetry = by_rotation,
    .passes_on = true,
};

const Entry bidirectional_ring_all_gather = {
    .name = "bidirectional_ring",
    .collective = Collective::all_gather,
    .summary = "Half of every block goes around a ring, the other half the other way.",
    .source = "Demystifying NCCL, Table VI, in both directions",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header<2>,
    .program = program<2>,
    .cost = cost<2>,
    .symmetry = by_rotation,
    .passes_on = true,
};

}  // namespace unisono::algorithm
