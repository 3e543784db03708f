// All-to-all by one message for each pair of ranks, with equal blocks and with unequal ones.
//
// Direct: all p - 1 messages at once, to rank + 1, rank + 2, ... so that no rank is flooded.
//   steps 1, bytes sent (p - 1) n, cost α + (p - 1) n β; p - 1 connections busy at once
// Pairwise: in step s = 1 .. p - 1 a rank sends to rank + s and receives from rank - s, and goes
// on when it has both. (Thakur, Rabenseifner, Gropp 2005, section 4.)
//   steps p - 1, bytes sent (p - 1) n, cost (p - 1) (α + n β)
//
// In place, a block that arrives takes the place of one that is to be sent, or is still being sent
// without a copy; so the blocks to be sent are copied to scratch first (p blocks). With unequal
// blocks no scratch block has the right size, and in place is refused. One slot is enough.
#include "algorithm/algorithms.h"
#include "algorithm/parts/cost_tally.h"
#include "algorithm/parts/group.h"
#include "algorithm/request.h"
#include "base/error.h"
#include "plan/builder.h"

namespace unisono::algorithm {
namespace {

using plan::BlockBuilder;
using plan::ProgramBuilder;

int channels_of(const Request& request) {
  return request.collective == Collective::all_to_all_v ? 1 : request.channels;
}

void copy_own_block(ProgramBuilder& builder, const Request& request, int rank, int channel) {
  if (request.in_place) return;
  const int chunk = rank * channels_of(request) + channel;
  builder.block(channel, -1, -1).copy(plan::input(chunk), plan::output(chunk));
}

plan::RankProgram direct_program(const Request& request, int rank) {
  const int ranks = request.placement.ranks();
  const int channels = channels_of(request);
  ProgramBuilder builder(rank);
  if (request.in_place) builder.need_scratch(ranks);
  for (int channel = 0; channel < channels; ++channel) {
    copy_own_block(builder, request, rank, channel);
    for (int distance = 1; distance < ranks; ++distance) {
      const int peer = (rank + distance) % ranks;
      const int chunk = peer * channels + channel;
      BlockBuilder exchange = builder.block(channel, peer, peer);
      if (request.in_place) {
        exchange.copy(plan::input(chunk), plan::scratch(chunk));
        exchange.send(plan::scratch(chunk));
      } else {
        exchange.send(plan::input(chunk));
      }
      exchange.recv(plan::output(chunk));
    }
  }
  return builder.take();
}

plan::RankProgram pairwise_program(const Request& request, int rank) {
  const int ranks = request.placement.ranks();
  const int channels = channels_of(request);
  ProgramBuilder builder(rank);
  for (int channel = 0; channel < channels; ++channel) {
    copy_own_block(builder, request, rank, channel);
    Ready ready;
    if (request.in_place && ranks > 1) {
      builder.need_scratch(ranks);
      const plan::Index others = plan::affine(rank + 1, 1, ranks, channels, channel);
      BlockBuilder save = builder.block(channel, -1, -1);
      save.loop(ranks - 1);
      save.copy(plan::input(others), plan::scratch(others));
      save.end_loop();
      ready = {done(save)};
    }
    for (int distance = 1; distance < ranks; ++distance) {
      const int to = (rank + distance) % ranks;
      const int from = (rank - distance + ranks) % ranks;
      const int chunk = to * channels + channel;
      BlockBuilder exchange = builder.block(channel, to, from);
      wait_for(exchange, ready);
      exchange.send(request.in_place ? plan::scratch(chunk) : plan::input(chunk));
      exchange.recv(plan::output(from * channels + channel));
      ready = {done(exchange)};
    }
  }
  return builder.take();
}

plan::Header header(const Request& request) {
  plan::Header header = header_for(request, channels_of(request));
  header.channels = channels_of(request);
  return header;
}

Status only_out_of_place(const Request& request) {
  if (!request.in_place) return {};
  return misuse(
      "all_to_all_v cannot work in place, because blocks of unequal size cannot be exchanged in "
      "place; pass a separate output buffer");
}

// The phases after which a rank waits: one of all messages, or one a message.
Cost cost(const Request& request, double block_bytes, bool all_at_once) {
  const int ranks = request.placement.ranks();
  CostTally tally(request.placement);
  for (int distance = 1; distance < ranks; ++distance) {
    for (int rank = 0; rank < ranks; ++rank)
      tally.send(rank, (rank + distance) % ranks, block_bytes);
    if (!all_at_once) tally.end_phase();
  }
  tally.end_phase();
  return tally.total(0);
}
Cost direct_cost(const Request& request, double block_bytes) {
  return cost(request, block_bytes, true);
}
Cost pairwise_cost(const Request& request, double block_bytes) {
  return cost(request, block_bytes, false);
}

}  // namespace

const Entry direct_all_to_all = {
    .name = "direct",
    .collective = Collective::all_to_all,
    .summary = "Every rank sends every other one its block, all at once.",
    .source = "folklore",
    .constraint = "any number of ranks; each has a connection to every other",
    .supports = any_ranks,
    .header = header,
    .program = direct_program,
    .cost = direct_cost,
    .symmetry = by_rotation,
};

const Entry pairwise_all_to_all = {
    .name = "pairwise",
    .collective = Collective::all_to_all,
    .summary = "In step s every rank sends to rank + s and receives from rank - s.",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header,
    .program = pairwise_program,
    .cost = pairwise_cost,
    .symmetry = by_rotation,
};

const Entry direct_all_to_all_v = {
    .name = "direct",
    .collective = Collective::all_to_all_v,
    .summary = "Every rank sends every other one its block, of any size, all at once.",
    .source = "folklore",
    .constraint = "any number of ranks; not in place",
    .supports = only_out_of_place,
    .header = header,
    .program = direct_program,
    .cost = direct_cost,
    .symmetry = by_rotation,
};

const Entry pairwise_all_to_all_v = {
    .name = "pairwise",
    .collective = Collective::all_to_all_v,
    .summary = "In step s every rank sends a block of any size to rank + s.",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4",
    .constraint = "any number of ranks; not in place",
    .supports = only_out_of_place,
    .header = header,
    .program = pairwise_program,
    .cost = pairwise_cost,
    .symmetry = by_rotation,
};

}  // namespace unisono::algorithm
