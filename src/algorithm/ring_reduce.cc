// Ring reduce: a chain along the ring that starts after the root and ends at it. (Primitives as
// Table X of "Demystifying NCCL".)
//
//   first    send
//   middle   recv_reduce_send
//   root     recv_reduce_copy
//
//   steps          k-1       k: the number of ranks
//   bytes sent     n
//   bytes reduced  n
//   cost           (k-1) (α + t β + t γ) + (n - t) β, t: the bytes of a tile; tiles follow each
//                  other down the chain
//
// The chain is the ring of the other ring algorithms, so that it uses connections which exist.
// Only the root writes, and it sends nothing. One slot per connection is enough.
#include "algorithm/algorithms.h"
#include "algorithm/parts/ring.h"
#include "algorithm/parts/ring_cost.h"
#include "algorithm/request.h"
#include "plan/builder.h"

namespace unisono::algorithm {
namespace {

using plan::input;
using plan::output;

void write_chain(plan::ProgramBuilder& builder, const Ring& ring, int root, int rank, int channel) {
  const std::int64_t q = ring.position_of(rank);
  const int next = ring.rank_at(q + 1);
  const int previous = ring.rank_at(q - 1);
  if (rank == root)
    builder.block(channel, -1, previous).recv_reduce_copy(input(channel), output(channel));
  else if (previous != root)
    builder.block(channel, next, previous).recv_reduce_send(input(channel));
  else
    builder.block(channel, next, -1).send(input(channel));
}

plan::Header header(const Request& request) { return header_for(request, request.channels); }

plan::RankProgram program(const Request& request, int rank) {
  plan::ProgramBuilder builder(rank);
  for (int channel = 0; channel < request.channels; ++channel) {
    const Ring ring(request.placement, channel);
    if (ring.size() > 1)
      write_chain(builder, ring, request.root, rank, channel);
    else
      builder.block(channel, -1, -1).copy(input(channel), output(channel));
  }
  return builder.take();
}

Cost cost(const Request& request, double block_bytes) {
  return chain_cost(request, ChainEnd::at_root, block_bytes, block_bytes);
}

}  // namespace

const Entry ring_reduce = {
    .name = "ring",
    .collective = Collective::reduce,
    .summary = "A chain along the ring that ends at the root.",
    .source = "Demystifying NCCL, Table X",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header,
    .program = program,
    .cost = cost,
    .passes_on = true,
};

}  // namespace unisono::algorithm
