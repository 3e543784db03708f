#include "algorithm/group_ring.h"

#include "algorithm/exchange.h"
#include "algorithm/sequence.h"

namespace unisono::algorithm {
namespace {

// The runs of the blocks of the members `first` before this one, `first` + 1 before it, ...
std::vector<Run> runs_going_back(const Group& group, const BlockMap& map, int first, int count) {
  std::vector<Run> runs;
  for (int i = 0; i < count; ++i) {
    const std::vector<Run> more = map.runs(group.member_at(group.me() - first - i), 1);
    runs.insert(runs.end(), more.begin(), more.end());
  }
  return runs;
}

std::vector<Move> moves(const std::vector<Run>& from, const std::vector<Run>& to) {
  std::vector<Move> result;
  for (std::size_t i = 0; i < from.size(); ++i) result.push_back({from[i], to[i]});
  return result;
}

plan::BlockBuilder ring_block(Phase& phase) {
  const Group& group = phase.group;
  plan::BlockBuilder block =
      phase.program.block(phase.channel, group.rank(group.member_at(group.me() + 1)),
                          group.rank(group.member_at(group.me() - 1)));
  wait_for(block, phase.start);
  return block;
}

}  // namespace

Ready write_ring_all_gather(Phase& phase, plan::Location own, const BlockMap& blocks) {
  using plan::Location;
  const Group& group = phase.group;
  if (group.size() == 1) return place_own_block(phase, own, blocks);
  plan::BlockBuilder block = ring_block(phase);
  const bool in_place = own == blocks.at(group.me());
  for_each_move(block, moves(own_runs(blocks, group, own), own_runs(blocks, group)),
                [&](Location from, Location to, int count) {
                  in_place ? block.send(from, count) : block.copy_send(from, to, count);
                });
  for_each_run(block, runs_going_back(group, blocks, 1, group.size() - 2),
               [&](Location to, int count) { block.recv_copy_send(to, count); });
  for_each_run(block, runs_going_back(group, blocks, group.size() - 1, 1),
               [&](Location to, int count) { block.recv(to, count); });
  return block.steps() > 0 ? Ready{done(block)} : phase.start;
}

Ready write_ring_reduce_scatter(Phase& phase, const BlockMap& contributions,
                                plan::Location result) {
  using plan::Location;
  const Group& group = phase.group;
  const std::vector<Move> last =
      moves(own_runs(contributions, group), own_runs(contributions, group, result));
  if (group.size() == 1) {
    plan::BlockBuilder alone = phase.program.block(phase.channel, -1, -1);
    wait_for(alone, phase.start);
    for (const Move& move : last)
      if (move.from.location != move.to.location)
        alone.copy(move.from.location, move.to.location, move.from.count);
    return alone.steps() > 0 ? Ready{done(alone)} : phase.start;
  }
  plan::BlockBuilder block = ring_block(phase);
  for_each_run(block, runs_going_back(group, contributions, 1, 1),
               [&](Location from, int count) { block.send(from, count); });
  for_each_run(block, runs_going_back(group, contributions, 2, group.size() - 2),
               [&](Location from, int count) { block.recv_reduce_send(from, count); });
  for_each_move(block, last, [&](Location from, Location to, int count) {
    block.recv_reduce_copy(from, to, count);
  });
  return block.steps() > 0 ? Ready{done(block)} : phase.start;
}

}  // namespace unisono::algorithm
