// Ring all-reduce: a reduce-scatter around the ring followed by an all-gather around it, in one
// thread block. (Patarasuk and Yuan 2009; primitives as Table V of "Demystifying NCCL".)
//
//   step 0             send                   chunk q-1          q: this rank's position
//   steps 1 .. k-2     recv_reduce_send       chunk q-1-step     k: the number of ranks
//   step k-1           recv_reduce_copy_send  chunk q
//   steps k .. 2k-3    recv_copy_send         chunk q+k-1-step
//   step 2k-2          recv                   chunk q+1
//
//   steps          2 (k-1)
//   bytes sent     2 n (k-1)/k
//   bytes reduced  n (k-1)/k
//   cost           2 (k-1) α + 2 n (k-1)/k β + n (k-1)/k γ
//
// Every chunk is reduced along one path and then copied: all ranks get the same bits. Two slots
// per connection: a step that receives and sends keeps the slot of what it receives until it has
// one for what it sends, and with one slot all ranks would wait for each other so. In place, what
// step 0 sent is overwritten in step k, long after the receiver took it in its step 1.
//
// The bidirectional ring sends half of the chunks the other way round: the same steps and bytes,
// on both directions of every link. Its direction is the lowest bit of the channel.
#include "algorithm/algorithms.h"
#include "algorithm/parts/ring_collectives.h"
#include "algorithm/parts/ring_cost.h"
#include "algorithm/request.h"
#include "plan/builder.h"

namespace unisono::algorithm {
namespace {

using plan::input;
using plan::output;

// Chunk j of the ring on this channel is chunk j * channels + channel of the buffer.
void write_ring(plan::ProgramBuilder& builder, const Ring& ring, const Request&, int rank,
                int channel, int channels) {
  const std::int64_t k = ring.size();
  const std::int64_t q = ring.position_of(rank);
  const auto chunk = [&](std::int64_t position, std::int64_t step = 0) {
    const std::int64_t wrapped = (position + 2 * k) % k;
    if (step == 0) return plan::Index(wrapped * channels + channel);
    return plan::affine(wrapped, step, k, channels, channel);
  };
  plan::BlockBuilder block = builder.block(channel, ring.rank_at(q + 1), ring.rank_at(q - 1));
  block.send(input(chunk(q - 1)));
  block.loop(k - 2);
  block.recv_reduce_send(input(chunk(q - 2, -1)));
  block.end_loop();
  block.recv_reduce_copy_send(input(chunk(q)), output(chunk(q)));
  block.loop(k - 2);
  block.recv_copy_send(output(chunk(q - 1, -1)));
  block.end_loop();
  block.recv(output(chunk(q + 1)));
}

template <int directions>
plan::Header header(const Request& request) {
  return ring_header(request, directions, request.placement.ranks());
}

template <int directions>
plan::RankProgram program(const Request& request, int rank) {
  return ring_program(request, rank, directions, write_ring);
}

template <int directions>
Cost cost(const Request& request, double block_bytes) {
  const std::int64_t k = request.placement.ranks();
  const double passed = block_bytes * static_cast<double>(k - 1) / static_cast<double>(k);
  return ring_cost(request, directions, 2 * (k - 1), 2 * passed, passed);
}

}  // namespace

const Entry ring_all_reduce = {
    .name = "ring",
    .collective = Collective::all_reduce,
    .summary = "Partial sums go round a ring, then the sums.",
    .source = "Patarasuk, Yuan 2009; Demystifying NCCL, Table V",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header<1>,
    .program = program<1>,
    .cost = cost<1>,
    .symmetry = by_rotation,
    .passes_on = true,
};

const Entry bidirectional_ring_all_reduce = {
    .name = "bidirectional_ring",
    .collective = Collective::all_reduce,
    .summary = "Two rings in opposite directions with half of the data each.",
    .source = "Demystifying NCCL, Table V, in both directions",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header<2>,
    .program = program<2>,
    .cost = cost<2>,
    .symmetry = by_rotation,
    .passes_on = true,
};

}  // namespace unisono::algorithm
