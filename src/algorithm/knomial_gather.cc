// Gather and scatter over a k-nomial tree; binomial for k = 2. The tree is rotated so that the root
// of the collective is its root; the blocks of a subtree are neighbours and travel together.
//
//   steps          the depth of the tree, at most ceil(log_k p)
//   bytes sent     gather: b for each rank of a subtree, by its top; scatter: (p - 1) b by the root
//   cost           ceil(log_k p) α + (p - 1) b β      b: bytes of a block
//
// A rank in the middle keeps its subtree's blocks in scratch: p / k blocks at most. Where a
// subtree's ranks go round the end of the root's buffer, the root's message with them is two; with
// several channels, each block is a message. Nothing that was sent is overwritten; one slot per
// connection.
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

// One rank's part of a gather or scatter on one channel.
class Member {
 public:
  Member(const Request& request, int radix, int rank, int channel)
      : request_(request),
        tree_(radix, request.placement.ranks()),
        me_((rank - request.root + tree_.size()) % tree_.size()),
        channel_(channel) {}

  void write_gather(ProgramBuilder& builder) const;
  void write_scatter(ProgramBuilder& builder) const;
  int max_step_count() const;

 private:
  int rank_at(int position) const { return (position + request_.root) % tree_.size(); }
  bool is_root() const { return me_ == 0; }
  bool is_leaf() const { return tree_.subtree(me_) == 1; }

  // Blocks in each message that takes the subtree of `top` to or from its parent.
  std::vector<int> messages(int top) const {
    const int size = tree_.subtree(top);
    if (request_.channels > 1) return std::vector<int>(static_cast<std::size_t>(size), 1);
    const int until_end = tree_.size() - rank_at(top);
    if (tree_.parent(top) != 0 || until_end >= size) return {size};
    return {until_end, size - until_end};
  }
  // Where this rank has the block of a position in its subtree; the root in `whole`.
  Location place(int position, plan::Buffer whole) const {
    const int block = is_root() ? rank_at(position) : position - me_;
    return {is_root() ? whole : plan::Buffer::scratch,
            std::int64_t{block} * request_.channels + channel_};
  }

  const Request& request_;
  KnomialTree tree_;
  int me_;
  int channel_;
};

void Member::write_gather(ProgramBuilder& builder) const {
  const Location raw = plan::input(channel_);
  if (!is_root() && is_leaf()) {
    builder.block(channel_, rank_at(tree_.parent(me_)), -1).send(raw);
    return;
  }
  Ready ready;
  for (int child : tree_.children(me_)) {
    BlockBuilder take = builder.block(channel_, -1, rank_at(child));
    for (int position = child; int count : messages(child)) {
      take.recv(place(position, plan::Buffer::output), count);
      position += count;
    }
    ready.push_back(done(take));
  }
  if (is_root()) {
    if (!request_.in_place)
      builder.block(channel_, -1, -1).copy(raw, place(0, plan::Buffer::output));
    return;
  }
  builder.need_scratch(tree_.subtree(me_));
  BlockBuilder give = builder.block(channel_, rank_at(tree_.parent(me_)), -1);
  give.copy(raw, place(me_, plan::Buffer::output));
  wait_for(give, ready);
  for (int position = me_; int count : messages(me_)) {
    give.send(place(position, plan::Buffer::output), count);
    position += count;
  }
}

void Member::write_scatter(ProgramBuilder& builder) const {
  const Location mine = plan::output(channel_);
  Ready ready;
  if (!is_root()) {
    BlockBuilder take = builder.block(channel_, -1, rank_at(tree_.parent(me_)));
    if (is_leaf()) {
      take.recv(mine);
      return;
    }
    builder.need_scratch(tree_.subtree(me_));
    for (int position = me_; int count : messages(me_)) {
      take.recv(place(position, plan::Buffer::input), count);
      position += count;
    }
    ready = {done(take)};
    take.copy(place(me_, plan::Buffer::input), mine);
  } else if (!request_.in_place) {
    builder.block(channel_, -1, -1).copy(place(0, plan::Buffer::input), mine);
  }
  for (int child : tree_.children(me_)) {
    BlockBuilder give = builder.block(channel_, rank_at(child), -1);
    wait_for(give, ready);
    for (int position = child; int count : messages(child)) {
      give.send(place(position, plan::Buffer::input), count);
      position += count;
    }
  }
}

int Member::max_step_count() const {
  int most = 1;
  for (int top = 1; top < tree_.size(); ++top)
    for (int count : messages(top)) most = std::max(most, count);
  return most;
}

template <int radix>
plan::Header header(const Request& request) {
  return header_for(request, request.channels, Member(request, radix, 0, 0).max_step_count());
}

template <int radix>
plan::RankProgram program(const Request& request, int rank) {
  ProgramBuilder builder(rank);
  for (int channel = 0; channel < request.channels; ++channel) {
    const Member member(request, radix, rank, channel);
    if (request.collective == Collective::gather)
      member.write_gather(builder);
    else
      member.write_scatter(builder);
  }
  return builder.take();
}

template <int radix>
Cost cost(const Request& request, double block_bytes) {
  const int ranks = request.placement.ranks();
  const KnomialTree tree(radix, ranks);
  const bool gathers = request.collective == Collective::gather;
  CostTally tally(request.placement);
  for (int phase = 1; phase <= tree.max_depth(); ++phase) {
    const int depth = gathers ? tree.max_depth() + 1 - phase : phase;
    for (int position = 1; position < ranks; ++position) {
      if (tree.depth(position) != depth) continue;
      const int child = (position + request.root) % ranks;
      const int parent = (tree.parent(position) + request.root) % ranks;
      tally.send(gathers ? child : parent, gathers ? parent : child,
                 block_bytes * tree.subtree(position));
    }
    tally.end_phase();
  }
  return tally.total(0);
}

template <int radix>
constexpr Entry entry(Collective collective, std::string_view summary, std::string_view source) {
  return knomial_entry<radix>(collective, summary, source, header<radix>, program<radix>,
                              cost<radix>);
}

}  // namespace

const Entry binomial_gather =
    entry<2>(Collective::gather, "Up a binomial tree, whole subtrees together.", "folklore");
const Entry knomial_gather =
    entry<4>(Collective::gather, "Up a tree of radix 4, whole subtrees together.",
             "folklore; the binomial tree in base 4");
const Entry binomial_scatter =
    entry<2>(Collective::scatter, "Down a binomial tree, whole subtrees together.", "folklore");
const Entry knomial_scatter =
    entry<4>(Collective::scatter, "Down a tree of radix 4, whole subtrees together.",
             "folklore; the binomial tree in base 4");

}  // namespace unisono::algorithm
