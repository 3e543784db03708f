// PAT reduce-scatter: pat.h's trees backwards, the sums for every member's block up its own.
//
//   messages       p - 1 without aggregation; log2 A + P / A - 1 with A blocks in one
//   steps          see pat_cost.h: without aggregation about p / 8 + log2 p, as the messages that
//                  reuse an area wait for it; with more blocks in one, fewer
//   bytes sent     (p - 1) b      b: bytes of a block
//   bytes reduced  (p - 1) b
//   cost           ceil(log2 p) α + (p - 1) b (β + γ), as far as the starts of messages overlap
//
// What comes to a member for a block is added to its own contribution, and goes on when all is
// there. Sums stand in scratch, one area for each level of the tree, which is used again when what
// was in it has been sent: log2 p blocks without aggregation, where raw contributions are read in
// place, and A (log2 (P / A) + 1) with it, where they are copied next to each other first.
// Messages go in one order everywhere, and each waits only for earlier ones: one slot per
// connection is enough.

#include "algorithm/algorithms.h"
#include "algorithm/parts/exchange.h"
#include "algorithm/parts/group_collectives.h"
#include "algorithm/parts/pat.h"
#include "algorithm/parts/pat_cost.h"
#include "algorithm/parts/pat_links.h"
#include "algorithm/request.h"

namespace unisono::algorithm {
namespace {

// What stands in an area, in the order of the program.
struct AreaState {
  bool filled = false;
  Ready written{};  // when it may be read, or added to
  Ready sent{};     // when it may be used again
};

Ready reduce_unstaged(Phase& phase, const BlockMap& contributions, plan::Location result,
                      const PatTrees& trees) {
  const Group& group = phase.group;
  const int root = trees.bits();
  // Offsets of level 0 are leaves, and send raw data; the root's sum is the result.
  const PatAreas areas(phase, trees, contributions, std::max(root - 1, 0));
  PatLinks links(phase, PatLinks::Direction::down);
  std::vector<AreaState> states(static_cast<std::size_t>(root) + 1);
  const auto raw = [&](int offset) {
    return contributions.runs(group.member_at(group.me() - offset), 1);
  };
  for (auto hop = trees.hops().rbegin(); hop != trees.hops().rend(); ++hop) {
    AreaState& given = states[static_cast<std::size_t>(hop->bit)];
    plan::BlockBuilder& give = links.sender(hop->bit);
    wait_for(give, given.written);
    send_runs(give, given.filled ? areas.runs(hop->bit - 1, hop->to, {0}) : raw(hop->to));
    given = {.sent = {done(give)}};

    const int level = pat_level(hop->from, root);
    AreaState& taken = states[static_cast<std::size_t>(level)];
    const std::vector<Run> sum = level == root ? own_runs(contributions, group, result)
                                               : areas.runs(level - 1, hop->from, {0});
    plan::BlockBuilder& take = links.receiver(hop->bit);
    receive_runs(take, {.destination = sum,
                        .source = taken.filled ? sum : raw(hop->from),
                        .ready = taken.filled ? taken.written : taken.sent});
    taken.filled = true;
    taken.written = {done(take)};
  }
  return links.all_done();
}

// A reduce-scatter through scratch: A blocks in a message.
class StagedReduction {
 public:
  StagedReduction(Phase& phase, const BlockMap& contributions, plan::Location result,
                  const PatTrees& trees)
      : contributions_(contributions),
        trees_(trees),
        result_(own_runs(contributions, phase.group, result)),
        areas_(phase, trees, contributions, trees.lane_bit() + 1),
        links_(phase, PatLinks::Direction::down),
        pack_(phase.program.block(phase.channel, -1, -1)),
        states_(static_cast<std::size_t>(trees.lane_bit()) + 1) {
    wait_for(pack_, phase.start);
  }

  Ready write() {
    for (auto hop = trees_.hops().rbegin(); hop != trees_.hops().rend(); ++hop) write_hop(*hop);
    for (int bit = trees_.lane_bit(); bit < trees_.bits(); ++bit) write_gathering(bit);
    return links_.all_done();
  }

 private:
  AreaState& state(int area) { return states_[static_cast<std::size_t>(area)]; }

  void fill(int area, int offset) {
    if (state(area).filled) return;
    wait_for(pack_, state(area).sent);
    for (int lane : trees_.lanes_with(offset))
      copy_runs(pack_, contributions_.runs(areas_.member(offset, lane), 1),
                areas_.runs(area, offset, {lane}));
    state(area).filled = true;
    state(area).written = {done(pack_)};
  }

  void write_hop(const PatHop& hop) {
    const std::vector<int> lanes = trees_.lanes_with(hop.to);
    fill(hop.bit, hop.to);
    plan::BlockBuilder& give = links_.sender(hop.bit);
    wait_for(give, state(hop.bit).written);
    send_runs(give, areas_.runs(hop.bit, hop.to, lanes));
    state(hop.bit) = {.sent = {done(give)}};

    const int area = pat_level(hop.from, trees_.lane_bit());
    fill(area, hop.from);
    const std::vector<Run> sums = areas_.runs(area, hop.from, lanes);
    plan::BlockBuilder& take = links_.receiver(hop.bit);
    receive_runs(take, {.destination = sums, .source = sums, .ready = state(area).written});
    state(area).written = {done(take)};
  }

  // The lanes' sums go back to the lanes that they were spread from.
  void write_gathering(int bit) {
    const int root = trees_.lane_bit();
    const bool is_last = bit == trees_.bits() - 1;
    plan::BlockBuilder& give = links_.sender(bit);
    plan::BlockBuilder& take = links_.receiver(bit);
    for (const PatTrees::Spread& spread : trees_.spreads(bit)) {
      std::vector<int> to;
      for (std::size_t i = 0; i < spread.from.size(); ++i)
        to.push_back(spread.to + static_cast<int>(i));
      wait_for(give, state(root).written);
      send_runs(give, areas_.runs(root, 0, to));
      const std::vector<Run> sums = areas_.runs(root, 0, spread.from);
      receive_runs(
          take,
          {.destination = is_last ? result_ : sums, .source = sums, .ready = state(root).written});
    }
    state(root).written = {done(take)};
  }

  const BlockMap& contributions_;
  const PatTrees& trees_;
  std::vector<Run> result_;
  PatAreas areas_;
  PatLinks links_;
  plan::BlockBuilder pack_;
  std::vector<AreaState> states_;
};

}  // namespace

Ready write_pat_reduce_scatter(Phase& phase, const BlockMap& contributions, plan::Location result,
                               int aggregation) {
  const Group& group = phase.group;
  const PatTrees trees(group.size(), aggregation);
  if (group.size() == 1) {
    plan::BlockBuilder alone = phase.program.block(phase.channel, -1, -1);
    wait_for(alone, phase.start);
    copy_runs(alone, own_runs(contributions, group), own_runs(contributions, group, result));
    return {done(alone)};
  }
  if (!trees.aggregates()) return reduce_unstaged(phase, contributions, result, trees);
  return StagedReduction(phase, contributions, result, trees).write();
}

namespace {

template <int aggregation>
plan::Header header(const Request& request) {
  return group_header(request, PatTrees(request.placement.ranks(), aggregation).longest_message());
}

template <int aggregation>
plan::RankProgram program(const Request& request, int rank) {
  return reduce_scatter_program(
      request, rank, [](Phase& phase, const BlockMap& contributions, plan::Location result) {
        return write_pat_reduce_scatter(phase, contributions, result, aggregation);
      });
}

template <int aggregation>
Cost cost(const Request& request, double block_bytes) {
  return pat_reduce_scatter_cost(request, aggregation, block_bytes);
}

}  // namespace

const Entry pat_reduce_scatter = {
    .name = "pat",
    .collective = Collective::reduce_scatter,
    .summary =
        "Sums for every block go up a shifted binomial tree, far hops last, one in a message.",
    .source = "Jeaugey 2025 (PAT, NCCL 2.23)",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header<1>,
    .program = program<1>,
    .cost = cost<1>,
    .symmetry = by_rotation,
};

const Entry pat8_reduce_scatter = {
    .name = "pat8",
    .collective = Collective::reduce_scatter,
    .summary = "As pat, with sums for up to eight blocks in a message.",
    .source = "Jeaugey 2025 (PAT, NCCL 2.23)",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header<8>,
    .program = program<8>,
    .cost = cost<8>,
    .symmetry = by_rotation,
};

}  // namespace unisono::algorithm
