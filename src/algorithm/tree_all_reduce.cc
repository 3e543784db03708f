// Tree all-reduce: sums go up a tree and the result comes down it, half of the data on each of the
// two trees of a double binary tree. (Sanders, Speck and Träff 2007; primitives as Table VIII of
// "Demystifying NCCL".) The trees connect nodes; the ranks of a node hang in a chain under its
// head, the rank that talks to other nodes. Heads differ by channel, so that trees use
// different NICs. The lowest bit of a channel says which tree it runs.
//
//   root     recv_reduce_copy_send
//   middle   recv_reduce_send, then recv_copy_send
//   leaf     send, then recv
//
// This is exact for ranks with one child. A thread block has one peer to receive from, where NCCL's
// primitives take up to three: a rank with more children takes all but the last with
// recv_reduce_copy, summing up in the output, and sends down to all but one with a send of its own.
//
// Going up and coming down are in thread blocks of their own, for every rank: otherwise a tile's
// way up would wait until the tile before it has come down. With h the longest way from a rank to
// the root (about log2 N + ranks on a node - 1):
//
//   steps          2 h
//   bytes sent     at most 3 n, 2 n if each node has one rank: of n/2 on each tree, a rank sends
//                  once up and as often down as it has children
//   bytes reduced  at most 2 n, n if each node has one rank
//   cost           2 h (α + t β) + (bytes sent - t) β; t: the bytes of a tile, which follow each
//                  other up and down
//
// One root sums and all others copy: the same bits everywhere. One slot per connection is enough.
// In place, what a leaf sends is overwritten when the result returns, after its parent took it.
#include <algorithm>
#include <vector>

#include "algorithm/algorithms.h"
#include "algorithm/parts/double_tree.h"
#include "algorithm/request.h"
#include "plan/builder.h"

namespace unisono::algorithm {
namespace {

using plan::BlockBuilder;
using plan::input;
using plan::output;
using topo::Placement;

constexpr int trees = 2;

// A node's ranks from its head down the chain.
int chain_rank(const Placement& placement, int channel, int node, int position) {
  return placement.rank_at(node, (position + channel) % placement.ranks_on(node));
}

// Ranks, not nodes. The chain's child comes first: it is ready before those of other nodes.
TreePlace place_of_rank(const Placement& placement, int channel, int rank) {
  const int node = placement.node_of(rank);
  const int ranks = placement.ranks_on(node);
  const int position = ((placement.local_index(rank) - channel) % ranks + ranks) % ranks;
  TreePlace place;
  if (position + 1 < ranks)
    place.children.push_back(chain_rank(placement, channel, node, position + 1));
  if (position > 0) {
    place.parent = chain_rank(placement, channel, node, position - 1);
    return place;
  }
  const TreePlace nodes = place_in_double_tree(channel % trees, placement.nodes(), node);
  if (nodes.parent >= 0) place.parent = chain_rank(placement, channel, nodes.parent, 0);
  for (int child : nodes.children)
    place.children.push_back(chain_rank(placement, channel, child, 0));
  return place;
}

// Takes the sums of all children but the last into the output. Returns where this rank's own
// contribution stands then; the next step must wait for `before`.
plan::Location write_all_but_last(plan::ProgramBuilder& builder, const TreePlace& place,
                                  int channel, plan::Dependency& before) {
  plan::Location own = input(channel);
  for (std::size_t i = 0; i + 1 < place.children.size(); ++i) {
    BlockBuilder take = builder.block(channel, -1, place.children[i]);
    take.after(before.thread_block, before.steps).recv_reduce_copy(own, output(channel));
    before = {take.index(), take.steps()};
    own = output(channel);
  }
  return own;
}

// Sends the result, which stands in the output after `before`, to all children but the last.
void write_down_to_others(plan::ProgramBuilder& builder, const TreePlace& place, int channel,
                          const BlockBuilder& before) {
  for (std::size_t i = 0; i + 1 < place.children.size(); ++i)
    builder.block(channel, place.children[i], -1).after(before).send(output(channel));
}

void write_tree(plan::ProgramBuilder& builder, const TreePlace& place, int channel) {
  plan::Dependency before{.thread_block = -1, .steps = 0};
  if (place.children.empty()) {
    BlockBuilder up = builder.block(channel, place.parent, -1);
    up.send(input(channel));
    builder.block(channel, -1, place.parent).after(up).recv(output(channel));
    return;
  }
  const plan::Location own = write_all_but_last(builder, place, channel, before);
  const int last = place.children.back();
  const bool is_root = place.parent < 0;
  BlockBuilder up = builder.block(channel, is_root ? last : place.parent, last);
  up.after(before.thread_block, before.steps);
  if (is_root) {
    up.recv_reduce_copy_send(own, output(channel));
    write_down_to_others(builder, place, channel, up);
    return;
  }
  up.recv_reduce_send(own);
  BlockBuilder down = builder.block(channel, last, place.parent);
  down.after(up).recv_copy_send(output(channel));
  write_down_to_others(builder, place, channel, down);
}

plan::Header header(const Request& request) {
  const int channels = request.channels * trees;
  plan::Header header = header_for(request, channels);
  header.channels = channels;
  return header;
}

plan::RankProgram program(const Request& request, int rank) {
  plan::ProgramBuilder builder(rank);
  for (int channel = 0; channel < request.channels * trees; ++channel) {
    if (request.placement.ranks() == 1)
      builder.block(channel, -1, -1).copy(input(channel), output(channel));
    else
      write_tree(builder, place_of_rank(request.placement, channel, rank), channel);
  }
  return builder.take();
}

// How often one rank sends, sends to another node, and reduces a chunk.
struct Work {
  int sent = 0, sent_inter_node = 0, reduced = 0;
};

Cost cost(const Request& request, double block_bytes) {
  const Placement& placement = request.placement;
  Cost cost;
  for (int node = 0; node < placement.nodes(); ++node)
    for (int tree = 0; tree < trees; ++tree) {
      const std::int64_t depth = depth_in_double_tree(tree, placement.nodes(), node);
      cost.steps_inter_node = std::max(cost.steps_inter_node, 2 * depth);
      cost.steps = std::max(cost.steps, 2 * (depth + placement.ranks_on(node) - 1));
    }
  const int channels = request.channels * trees;
  Work most;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    Work work;
    for (int channel = 0; channel < channels; ++channel) {
      TreePlace place = place_of_rank(placement, channel, rank);
      work.reduced += static_cast<int>(place.children.size());
      if (place.parent >= 0) place.children.push_back(place.parent);
      for (int peer : place.children) {
        ++work.sent;
        work.sent_inter_node += placement.same_node(rank, peer) ? 0 : 1;
      }
    }
    most = {std::max(most.sent, work.sent), std::max(most.sent_inter_node, work.sent_inter_node),
            std::max(most.reduced, work.reduced)};
  }
  // Up and down every edge of each tree.
  cost.messages_of_all = std::int64_t{2} * trees * (placement.ranks() - 1);
  cost.messages_of_all_inter_node = std::int64_t{2} * trees * (placement.nodes() - 1);
  const double chunk_bytes = block_bytes / channels;
  // Each hop but the first passes on a whole tile, or all of a short message.
  const double tile_bytes = std::min(chunk_bytes, Cost::least_tile_bytes_inter_node);
  cost.bytes_filling_inter_node =
      static_cast<double>(std::max<std::int64_t>(cost.steps_inter_node - 1, 0)) * tile_bytes / 2;
  cost.bytes_filling = static_cast<double>(cost.steps - cost.steps_inter_node) * tile_bytes / 2;
  cost.bytes_sent = most.sent * chunk_bytes;
  cost.bytes_sent_inter_node = most.sent_inter_node * chunk_bytes;
  cost.bytes_reduced = most.reduced * chunk_bytes;
  return cost;
}

}  // namespace

const Entry tree_all_reduce = {
    .name = "tree",
    .collective = Collective::all_reduce,
    .summary = "Up and down the two trees of a double binary tree, half of the data on each.",
    .source = "Sanders, Speck, Träff 2007; Demystifying NCCL, Table VIII",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header,
    .program = program,
    .cost = cost,
};

}  // namespace unisono::algorithm
