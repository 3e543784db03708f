// Ring broadcast: a chain from the root along the ring, ending before the root. (Primitives as
// Table IX of "Demystifying NCCL".)
//
//   root     copy_send (in place: send)
//   middle   recv_copy_send
//   last     recv
//
//   steps          k-1       k: the number of ranks
//   bytes sent     n
//   bytes reduced  none
//   cost           (k-1) (α + t β) + (n - t) β, t: the bytes of a tile; tiles follow each other
//                  down the chain
//
// The chain is the ring of the other ring algorithms cut before the root, so that it uses
// connections which exist; that a root in the middle of its node makes the chain leave and enter
// this node costs no more than one edge between nodes. One slot per connection is enough.
#include "algorithm/algorithms.h"
#include "algorithm/parts/ring.h"
#include "algorithm/parts/ring_cost.h"
#include "algorithm/request.h"
#include "plan/builder.h"

namespace unisono::algorithm {
namespace {

using plan::input;
using plan::output;

void write_chain(plan::ProgramBuilder& builder, const Ring& ring, const Request& request, int rank,
                 int channel) {
  const std::int64_t q = ring.position_of(rank);
  const int next = ring.rank_at(q + 1);
  const int previous = ring.rank_at(q - 1);
  if (rank == request.root && request.in_place)
    builder.block(channel, next, -1).send(input(channel));
  else if (rank == request.root)
    builder.block(channel, next, -1).copy_send(input(channel), output(channel));
  else if (next != request.root)
    builder.block(channel, next, previous).recv_copy_send(output(channel));
  else
    builder.block(channel, -1, previous).recv(output(channel));
}

plan::Header header(const Request& request) { return header_for(request, request.channels); }

plan::RankProgram program(const Request& request, int rank) {
  plan::ProgramBuilder builder(rank);
  for (int channel = 0; channel < request.channels; ++channel) {
    const Ring ring(request.placement, channel);
    if (ring.size() > 1)
      write_chain(builder, ring, request, rank, channel);
    else if (!request.in_place)
      builder.block(channel, -1, -1).copy(input(channel), output(channel));
  }
  return builder.take();
}

Cost cost(const Request& request, double block_bytes) {
  return chain_cost(request, ChainEnd::before_root, block_bytes, 0);
}

}  // namespace

const Entry ring_broadcast = {
    .name = "ring",
    .collective = Collective::broadcast,
    .summary = "A chain from the root along the ring.",
    .source = "Demystifying NCCL, Table IX",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header,
    .program = program,
    .cost = cost,
    .passes_on = true,
};

}  // namespace unisono::algorithm
