#include "algorithm/parts/node_phase.h"

#include <algorithm>

#include "algorithm/parts/sequence.h"

namespace unisono::algorithm {
namespace {

// The member `distance` before this one (after it, if negative).
const std::vector<Run>& share(const Shares& shares, const Group& group, int distance) {
  return shares[static_cast<std::size_t>(group.member_at(group.me() - distance))];
}

std::size_t longest(const Shares& shares) {
  std::size_t most = 0;
  for (const std::vector<Run>& one : shares) most = std::max(most, one.size());
  return most;
}

plan::BlockBuilder ring_block(Phase& phase) {
  const Group& group = phase.group;
  plan::BlockBuilder block =
      phase.program.block(phase.channel, group.rank(group.member_at(group.me() + 1)),
                          group.rank(group.member_at(group.me() - 1)));
  wait_for(block, phase.start);
  return block;
}

// The i-th run of every share goes once round, then the next ones: so each rank receives after
// every send, and two slots are enough however many runs a share has.
Ready gather_by_ring(Phase& phase, const Shares& shares) {
  const Group& group = phase.group;
  StepList steps;
  for (std::size_t i = 0; i < longest(shares); ++i) {
    const auto has = [&](int distance) { return i < share(shares, group, distance).size(); };
    const auto run = [&](int distance) { return share(shares, group, distance)[i]; };
    if (has(0)) steps.send(run(0));
    for (int distance = 1; distance < group.size() - 1; ++distance)
      if (has(distance)) steps.recv_copy_send(run(distance));
    if (has(-1)) steps.recv(run(-1));
  }
  plan::BlockBuilder block = ring_block(phase);
  steps.write_to(block);
  return {done(block)};
}

NodeSums reduce_by_ring(Phase& phase, const Shares& contributions, const std::vector<Run>& result) {
  const Group& group = phase.group;
  StepList steps;
  for (std::size_t i = 0; i < longest(contributions); ++i) {
    const auto has = [&](int distance) { return i < share(contributions, group, distance).size(); };
    const auto run = [&](int distance) { return share(contributions, group, distance)[i]; };
    if (has(1)) steps.send(run(1));
    for (int distance = 2; distance < group.size(); ++distance)
      if (has(distance)) steps.recv_reduce_send(run(distance));
    if (has(0)) steps.recv_reduce_copy(run(0), result[i]);
  }
  plan::BlockBuilder block = ring_block(phase);
  steps.write_to(block);
  const Ready complete{done(block)};
  return {complete, std::vector<Ready>(contributions.size(), complete)};
}

// Sends and receives are in thread blocks of their own, so that none of many runs waits for one
// that comes the other way; to each distance in turn, so that no rank is everybody's first.
//
// No thread block waits for those of all peers: that would be p^2 dependencies. What arrives from
// a peer waits only for what it overwrites.
Ready gather_directly(Phase& phase, const Shares& shares, const std::vector<Ready>& free) {
  const Group& group = phase.group;
  Ready ready = phase.start;
  for (int distance = 1; distance < group.size(); ++distance) {
    const int next = group.member_at(group.me() + distance);
    StepList sends, receives;
    for (const Run& run : share(shares, group, 0)) sends.send(run);
    for (const Run& run : share(shares, group, -distance)) receives.recv(run);
    plan::BlockBuilder give = phase.program.block(phase.channel, group.rank(next), -1);
    wait_for(give, phase.start);
    sends.write_to(give);
    plan::BlockBuilder take = phase.program.block(phase.channel, -1, group.rank(next));
    if (!free.empty()) wait_for(take, free[static_cast<std::size_t>(next)]);
    receives.write_to(take);
    ready.push_back(done(take));
  }
  return ready;
}

NodeSums reduce_directly(Phase& phase, const Shares& contributions,
                         const std::vector<Run>& result) {
  const Group& group = phase.group;
  NodeSums sums{phase.start, std::vector<Ready>(contributions.size())};
  for (int distance = 1; distance < group.size(); ++distance) {
    const int next = group.member_at(group.me() + distance);
    const std::vector<Run>& own = distance == 1 ? share(contributions, group, 0) : result;
    StepList sends, receives;
    for (const Run& run : share(contributions, group, -distance)) sends.send(run);
    for (std::size_t i = 0; i < own.size(); ++i) receives.recv_reduce_copy(own[i], result[i]);
    plan::BlockBuilder give = phase.program.block(phase.channel, group.rank(next), -1);
    wait_for(give, phase.start);
    sends.write_to(give);
    plan::BlockBuilder take = phase.program.block(phase.channel, -1, group.rank(next));
    wait_for(take, sums.complete);
    receives.write_to(take);
    sums.given[static_cast<std::size_t>(next)] = {done(give)};
    sums.complete = {done(take)};
  }
  return sums;
}

}  // namespace

NodeSums reduce_in_node(Phase& phase, InsideNode algorithm, const Shares& contributions,
                        const std::vector<Run>& result) {
  return algorithm == InsideNode::ring ? reduce_by_ring(phase, contributions, result)
                                       : reduce_directly(phase, contributions, result);
}

Ready gather_in_node(Phase& phase, InsideNode algorithm, const Shares& shares,
                     const std::vector<Ready>& free) {
  if (phase.group.size() == 1) return phase.start;
  return algorithm == InsideNode::ring ? gather_by_ring(phase, shares)
                                       : gather_directly(phase, shares, free);
}

NodeCost cost_in_node(const topo::Placement& placement, InsideNode algorithm,
                      const std::vector<LaneLoad>& lanes, bool reduces) {
  NodeCost most;
  double all = 0;
  std::int64_t all_runs = 0;
  for (const LaneLoad& lane : lanes) {
    all += lane.bytes;
    all_runs += lane.runs;
  }
  for (int node = 0; node < placement.nodes(); ++node) {
    const int ranks = placement.ranks_on(node);
    if (ranks == 1) continue;
    std::vector<LaneLoad> held(static_cast<std::size_t>(ranks));
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      held[lane % held.size()].bytes += lanes[lane].bytes;
      held[lane % held.size()].runs += lanes[lane].runs;
    }
    const auto [fewest, most_bytes] = std::ranges::minmax(held, {}, &LaneLoad::bytes);
    const std::int64_t runs = std::ranges::max(held, {}, &LaneLoad::runs).runs;
    // A ring passes on all but the share of the next member, adds all but that of the one before,
    // and takes one round for each run of the longest share.
    const double all_but_one = all - fewest.bytes;
    const double to_each = most_bytes.bytes * (ranks - 1);
    const bool ring = algorithm == InsideNode::ring;
    most.steps = std::max(most.steps, ring ? runs * (ranks - 1) : 1);
    most.messages = std::max(most.messages, ring ? most.steps : std::int64_t{ranks - 1});
    most.sent = std::max(most.sent, ring || reduces ? all_but_one : to_each);
    // Each share goes to, or comes from, all but the one who has it.
    most.messages_of_all += all_runs * (ranks - 1);
    if (reduces) most.reduced = std::max(most.reduced, ring ? all_but_one : to_each);
  }
  return most;
}

}  // namespace unisono::algorithm
