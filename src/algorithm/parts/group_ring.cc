#include "algorithm/parts/group_ring.h"

#include "algorithm/parts/exchange.h"
#include "algorithm/parts/sequence.h"

namespace unisono::algorithm {
namespace {

plan::BlockBuilder ring_block(Phase& phase) {
  const Group& group = phase.group;
  plan::BlockBuilder block =
      phase.program.block(phase.channel, group.rank(group.member_at(group.me() + 1)),
                          group.rank(group.member_at(group.me() - 1)));
  wait_for(block, phase.start);
  return block;
}

std::vector<Run> runs_before(const Group& group, const BlockMap& map, int distance) {
  return map.runs(group.member_at(group.me() - distance), 1);
}

Ready write(const StepList& steps, plan::BlockBuilder& block, const Ready& start) {
  steps.write_to(block);
  return block.steps() > 0 ? Ready{done(block)} : start;
}

}  // namespace

Ready write_ring_all_gather(Phase& phase, plan::Location own, const BlockMap& blocks) {
  const Group& group = phase.group;
  if (group.size() == 1) return place_own_block(phase, own, blocks);
  const std::vector<Run> from = own_runs(blocks, group, own);
  const std::vector<Run> to = own_runs(blocks, group);
  StepList steps;
  for (std::size_t i = 0; i < from.size(); ++i)
    from[i].location == to[i].location ? steps.send(from[i]) : steps.copy_send(from[i], to[i]);
  for (int distance = 1; distance < group.size() - 1; ++distance)
    for (const Run& run : runs_before(group, blocks, distance)) steps.recv_copy_send(run);
  for (const Run& run : runs_before(group, blocks, -1)) steps.recv(run);
  plan::BlockBuilder block = ring_block(phase);
  return write(steps, block, phase.start);
}

Ready write_ring_reduce_scatter(Phase& phase, const BlockMap& contributions,
                                plan::Location result) {
  const Group& group = phase.group;
  const std::vector<Run> from = own_runs(contributions, group);
  const std::vector<Run> to = own_runs(contributions, group, result);
  if (group.size() == 1) {
    plan::BlockBuilder alone = phase.program.block(phase.channel, -1, -1);
    wait_for(alone, phase.start);
    copy_runs(alone, from, to);
    return alone.steps() > 0 ? Ready{done(alone)} : phase.start;
  }
  StepList steps;
  for (const Run& run : runs_before(group, contributions, 1)) steps.send(run);
  for (int distance = 2; distance < group.size(); ++distance)
    for (const Run& run : runs_before(group, contributions, distance)) steps.recv_reduce_send(run);
  for (std::size_t i = 0; i < from.size(); ++i) steps.recv_reduce_copy(from[i], to[i]);
  plan::BlockBuilder block = ring_block(phase);
  return write(steps, block, phase.start);
}

}  // namespace unisono::algorithm
