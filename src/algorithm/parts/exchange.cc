#include "algorithm/parts/exchange.h"

namespace unisono::algorithm {

void send_runs(plan::BlockBuilder& block, const std::vector<Run>& runs) {
  for (const Run& run : runs) block.send(run.location, run.count);
}

void receive_runs(plan::BlockBuilder& block, const Incoming& in) {
  if (!in.destination.empty()) wait_for(block, in.ready);
  for (std::size_t i = 0; i < in.destination.size(); ++i) {
    const Run& run = in.destination[i];
    if (in.source.empty())
      block.recv(run.location, run.count);
    else
      block.recv_reduce_copy(in.source[i].location, run.location, run.count);
  }
}

Ready exchange(Phase& phase, const Ready& start, int to, const std::vector<Run>& out, int from,
               const Incoming& in) {
  const bool sends = !out.empty();
  const bool receives = !in.destination.empty();
  if (!sends && !receives) return start;
  Ready ready;
  const auto add = [&](int send_peer, int recv_peer) {
    plan::BlockBuilder block = phase.program.block(phase.channel, send_peer, recv_peer);
    wait_for(block, start);
    if (send_peer >= 0) send_runs(block, out);
    if (recv_peer >= 0) receive_runs(block, in);
    ready.push_back(done(block));
  };
  if (sends && receives && out.size() == 1 && in.destination.size() == 1 && !phase.overlaps_tiles) {
    add(to, from);
  } else {
    if (sends) add(to, -1);
    if (receives) add(-1, from);
  }
  return ready;
}

std::vector<Run> moved(std::vector<Run> runs, std::int64_t from, plan::Location to) {
  const std::int64_t shift = to.index.base - from;
  for (Run& run : runs) run.location = {to.buffer, run.location.index.base + shift};
  return runs;
}

std::vector<Run> own_runs(const BlockMap& map, const Group& group) {
  return map.runs(group.me(), 1);
}

std::vector<Run> own_runs(const BlockMap& map, const Group& group, plan::Location place) {
  return moved(own_runs(map, group), map.first_chunk(group.me()), place);
}

void copy_runs(plan::BlockBuilder& block, const std::vector<Run>& source,
               const std::vector<Run>& destination) {
  for (std::size_t i = 0; i < source.size(); ++i)
    if (source[i].location != destination[i].location)
      block.copy(source[i].location, destination[i].location, source[i].count);
}

Ready place_own_block(Phase& phase, plan::Location own, const BlockMap& blocks) {
  const Group& group = phase.group;
  if (own == blocks.at(group.me()) || blocks.chunks(group.me()) == 0) return phase.start;
  plan::BlockBuilder place = phase.program.block(phase.channel, -1, -1);
  wait_for(place, phase.start);
  copy_runs(place, own_runs(blocks, group, own), own_runs(blocks, group));
  return {done(place)};
}

Ready both(Ready a, const Ready& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace unisono::algorithm
