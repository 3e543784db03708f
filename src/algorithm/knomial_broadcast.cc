// Broadcast and reduce over a k-nomial tree; binomial for k = 2. The tree is rotated so that the
// root of the collective is its root.
//
//   steps          the depth of the tree, at most ceil(log_k p)
//   bytes sent     broadcast: n by a rank for each child, (k - 1) ceil(log_k p) n at most, by the
//                  root; reduce: n
//   bytes reduced  reduce: n for each child
//   cost           broadcast: ceil(log_k p) α + (k - 1) ceil(log_k p) n β, for one tile; tiles
//                  follow each other down the tree
//
// Larger subtrees are served first; a reduce adds the children of smaller ones first, which are the
// sooner ready, by their distance from the rank. A rank of a reduce that is not the root adds in
// scratch (one block), as it may have no output. Nothing that was sent is overwritten; one slot per
// connection.
#include <algorithm>

#include "algorithm/algorithms.h"
#include "algorithm/parts/cost_tally.h"
#include "algorithm/parts/group.h"
#include "algorithm/parts/knomial.h"
#include "algorithm/request.h"
#include "plan/builder.h"

namespace unisono::algorithm {
namespace {

using plan::BlockBuilder;
using plan::Location;
using plan::ProgramBuilder;

int position_of(const Request& request, int rank) {
  const int ranks = request.placement.ranks();
  return (rank - request.root + ranks) % ranks;
}
int rank_at(const Request& request, int position) {
  return (position + request.root) % request.placement.ranks();
}

plan::Header header(const Request& request) { return header_for(request, request.channels); }

void write_broadcast(ProgramBuilder& builder, const Request& request, const KnomialTree& tree,
                     int position, int channel) {
  const std::vector<int> children = tree.children(position);
  Ready ready;
  Location source = plan::input(channel);
  std::size_t next = 0;
  if (position > 0) {
    source = plan::output(channel);
    const int parent = rank_at(request, tree.parent(position));
    if (children.empty()) {
      builder.block(channel, -1, parent).recv(source);
      return;
    }
    BlockBuilder take = builder.block(channel, rank_at(request, children[next++]), parent);
    take.recv_copy_send(source);
    ready = {done(take)};
  } else if (!request.in_place) {
    builder.block(channel, -1, -1).copy(source, plan::output(channel));
  }
  for (; next < children.size(); ++next) {
    BlockBuilder give = builder.block(channel, rank_at(request, children[next]), -1);
    wait_for(give, ready);
    give.send(source);
  }
}

void write_reduce(ProgramBuilder& builder, const Request& request, const KnomialTree& tree,
                  int position, int channel) {
  std::vector<int> children = tree.children(position);
  std::ranges::sort(children);
  const bool is_root = position == 0;
  const int parent = is_root ? -1 : rank_at(request, tree.parent(position));
  const Location raw = plan::input(channel);
  if (children.empty()) {
    if (is_root)
      builder.block(channel, -1, -1).copy(raw, plan::output(channel));
    else
      builder.block(channel, parent, -1).send(raw);
    return;
  }
  const Location sum = is_root ? plan::output(channel) : plan::scratch(channel);
  if (!is_root && children.size() > 1) builder.need_scratch(1);
  Ready ready;
  for (const int child : children) {
    const Location source = child == children.front() ? raw : sum;
    const bool passes_on = !is_root && child == children.back();
    BlockBuilder take = builder.block(channel, passes_on ? parent : -1, rank_at(request, child));
    wait_for(take, ready);
    if (passes_on)
      take.recv_reduce_send(source);
    else
      take.recv_reduce_copy(source, sum);
    ready = {done(take)};
  }
}

template <int radix>
plan::RankProgram program(const Request& request, int rank) {
  const KnomialTree tree(radix, request.placement.ranks());
  const int position = position_of(request, rank);
  ProgramBuilder builder(rank);
  for (int channel = 0; channel < request.channels; ++channel) {
    if (request.collective == Collective::broadcast)
      write_broadcast(builder, request, tree, position, channel);
    else
      write_reduce(builder, request, tree, position, channel);
  }
  return builder.take();
}

// The most edges between nodes on a way from the root.
std::int64_t most_crossings(const Request& request, const KnomialTree& tree) {
  std::int64_t most = 0;
  for (int position = 1; position < tree.size(); ++position) {
    std::int64_t crossings = 0;
    for (int at = position; at > 0; at = tree.parent(at))
      if (!request.placement.same_node(rank_at(request, at), rank_at(request, tree.parent(at))))
        ++crossings;
    most = std::max(most, crossings);
  }
  return most;
}

template <int radix>
Cost cost(const Request& request, double block_bytes) {
  const int ranks = request.placement.ranks();
  const KnomialTree tree(radix, ranks);
  const bool adds = request.collective == Collective::reduce;
  CostTally tally(request.placement);
  for (int phase = 1; phase <= tree.max_depth(); ++phase) {
    const int depth = adds ? tree.max_depth() + 1 - phase : phase;
    for (int position = 1; position < ranks; ++position) {
      if (tree.depth(position) != depth) continue;
      const int child = rank_at(request, position);
      const int parent = rank_at(request, tree.parent(position));
      tally.send(adds ? child : parent, adds ? parent : child, block_bytes);
    }
    tally.end_phase();
  }
  Cost cost = tally.total(adds ? block_bytes * static_cast<double>(tree.children(0).size()) : 0);
  cost.steps_inter_node = most_crossings(request, tree);
  return cost;
}

template <int radix>
constexpr Entry entry(Collective collective, std::string_view summary, std::string_view source) {
  return knomial_entry<radix>(collective, summary, source, header, program<radix>, cost<radix>);
}

}  // namespace

const Entry binomial_broadcast = entry<2>(Collective::broadcast, "Down a binomial tree.",
                                          "Thakur, Rabenseifner, Gropp 2005, section 4.2");
const Entry knomial_broadcast =
    entry<4>(Collective::broadcast,
             "Down a tree of radix 4: half the depth of a binomial one, more children.",
             "folklore; the binomial tree in base 4");
const Entry binomial_reduce = entry<2>(Collective::reduce, "Up a binomial tree.",
                                       "Thakur, Rabenseifner, Gropp 2005, section 4.4");
const Entry knomial_reduce = entry<4>(
    Collective::reduce, "Up a tree of radix 4: half the depth of a binomial one, more children.",
    "folklore; the binomial tree in base 4");

}  // namespace unisono::algorithm
