// PAT all-gather: pat.h's trees, every member's block down its own.
//
//   messages       p - 1 without aggregation; log2 A + P / A - 1 with A blocks in one
//   steps          without aggregation at most ceil(log2 p), as a message leaves when its block has
//                  arrived; see pat_cost.h
//   bytes sent     (p - 1) b      b: bytes of a block
//   bytes reduced  none
//   cost           ceil(log2 p) α + (p - 1) b β, as far as the starts of messages overlap
//
// The farthest hop carries one block, the nearest half of all: long links see little. Without
// aggregation blocks go from and to their places, without scratch. With it, the blocks of a message
// come to lie next to each other in scratch, in log2 (P / A) + 1 areas of A blocks, and are copied
// from there to their places; an area is used again when what was in it has been sent and copied.
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

Ready gather_in_place(Phase& phase, plan::Location own, const BlockMap& blocks,
                      const PatTrees& trees) {
  const Group& group = phase.group;
  PatLinks links(phase, PatLinks::Direction::up);
  std::vector<Ready> arrived(static_cast<std::size_t>(trees.bits()) + 1);
  Ready all = place_own_block(phase, own, blocks);
  for (const PatHop& hop : trees.hops()) {
    plan::BlockBuilder& give = links.sender(hop.bit);
    wait_for(give, arrived[static_cast<std::size_t>(pat_level(hop.from, trees.bits()))]);
    send_runs(give, hop.from == 0 ? own_runs(blocks, group, own)
                                  : blocks.runs(group.member_at(group.me() - hop.from), 1));
    plan::BlockBuilder& take = links.receiver(hop.bit);
    receive_runs(take, {.destination = blocks.runs(group.member_at(group.me() - hop.to), 1)});
    arrived[static_cast<std::size_t>(hop.bit)] = {done(take)};
  }
  return both(all, links.all_done());
}

// An all-gather through scratch: A blocks in a message.
class StagedGather {
 public:
  StagedGather(Phase& phase, plan::Location own, const BlockMap& blocks, const PatTrees& trees)
      : blocks_(blocks),
        trees_(trees),
        areas_(phase, trees, blocks, trees.lane_bit() + 1),
        links_(phase, PatLinks::Direction::up),
        unpack_(phase.program.block(phase.channel, -1, -1)),
        arrived_(static_cast<std::size_t>(trees.lane_bit()) + 1),
        read_(arrived_.size()) {
    const Group& group = phase.group;
    plan::BlockBuilder stage = phase.program.block(phase.channel, -1, -1);
    wait_for(stage, phase.start);
    copy_runs(stage, own_runs(blocks, group, own), areas_.runs(trees.lane_bit(), 0, {0}));
    arrived_.back() = {done(stage)};
    placed_ = place_own_block(phase, own, blocks);
  }

  Ready write() {
    for (int bit = trees_.bits() - 1; bit >= trees_.lane_bit(); --bit) write_spreads(bit);
    for (const PatHop& hop : trees_.hops()) write_hop(hop);
    return both(placed_, {done(unpack_)});
  }

 private:
  void write_spreads(int bit) {
    const int root = trees_.lane_bit();
    plan::BlockBuilder& give = links_.sender(bit);
    plan::BlockBuilder& take = links_.receiver(bit);
    std::vector<int> added;
    for (const PatTrees::Spread& spread : trees_.spreads(bit)) {
      std::vector<int> to;
      for (std::size_t i = 0; i < spread.from.size(); ++i)
        to.push_back(spread.to + static_cast<int>(i));
      wait_for(give, arrived_.back());
      send_runs(give, areas_.runs(root, 0, spread.from));
      receive_runs(take, {.destination = areas_.runs(root, 0, to)});
      added.insert(added.end(), to.begin(), to.end());
    }
    unpack(root, 0, added, take);
    arrived_.back().push_back(done(take));
  }

  void write_hop(const PatHop& hop) {
    const auto from = static_cast<std::size_t>(pat_level(hop.from, trees_.lane_bit()));
    const auto to = static_cast<std::size_t>(hop.bit);
    const std::vector<int> lanes = trees_.lanes_with(hop.to);
    plan::BlockBuilder& give = links_.sender(hop.bit);
    wait_for(give, arrived_[from]);
    send_runs(give, areas_.runs(static_cast<int>(from), hop.from, lanes));
    read_[from].push_back(done(give));

    plan::BlockBuilder& take = links_.receiver(hop.bit);
    receive_runs(take, {.destination = areas_.runs(hop.bit, hop.to, lanes), .ready = read_[to]});
    arrived_[to] = {done(take)};
    unpack(hop.bit, hop.to, lanes, take);
    read_[to] = {done(unpack_)};
  }

  void unpack(int area, int offset, const std::vector<int>& lanes, const plan::BlockBuilder& take) {
    wait_for(unpack_, {done(take)});
    for (int lane : lanes)
      copy_runs(unpack_, areas_.runs(area, offset, {lane}),
                blocks_.runs(areas_.member(offset, lane), 1));
  }

  const BlockMap& blocks_;
  const PatTrees& trees_;
  PatAreas areas_;
  PatLinks links_;
  plan::BlockBuilder unpack_;
  // By area: when what is in it has arrived, and when it has been sent and copied.
  std::vector<Ready> arrived_, read_;
  Ready placed_;
};

}  // namespace

Ready write_pat_all_gather(Phase& phase, plan::Location own, const BlockMap& blocks,
                           int aggregation) {
  const PatTrees trees(phase.group.size(), aggregation);
  if (!trees.aggregates()) return gather_in_place(phase, own, blocks, trees);
  return StagedGather(phase, own, blocks, trees).write();
}

namespace {

template <int aggregation>
plan::Header header(const Request& request) {
  return group_header(request, PatTrees(request.placement.ranks(), aggregation).longest_message());
}

template <int aggregation>
plan::RankProgram program(const Request& request, int rank) {
  return all_gather_program(request, rank,
                            [](Phase& phase, plan::Location own, const BlockMap& blocks) {
                              return write_pat_all_gather(phase, own, blocks, aggregation);
                            });
}

template <int aggregation>
Cost cost(const Request& request, double block_bytes) {
  return pat_all_gather_cost(request, aggregation, block_bytes);
}

}  // namespace

const Entry pat_all_gather = {
    .name = "pat",
    .collective = Collective::all_gather,
    .summary = "Every block goes down a shifted binomial tree, far hops first, one in a message.",
    .source = "Jeaugey 2025 (PAT, NCCL 2.23)",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header<1>,
    .program = program<1>,
    .cost = cost<1>,
    .symmetry = by_rotation,
};

const Entry pat8_all_gather = {
    .name = "pat8",
    .collective = Collective::all_gather,
    .summary = "As pat, with up to eight blocks of neighbouring subtrees in a message.",
    .source = "Jeaugey 2025 (PAT, NCCL 2.23)",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header<8>,
    .program = program<8>,
    .cost = cost<8>,
    .symmetry = by_rotation,
};

}  // namespace unisono::algorithm
