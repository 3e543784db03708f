#include "algorithm/exchange.h"

#include <algorithm>

namespace unisono::algorithm {

void exchange(plan::BlockBuilder& block, const std::vector<Run>& out, const Incoming& in) {
  const std::size_t turns = std::max(out.size(), in.destination.size());
  for (std::size_t i = 0; i < turns; ++i) {
    if (i < out.size()) block.send(out[i].location, out[i].count);
    if (i >= in.destination.size()) continue;
    if (i == 0) wait_for(block, in.ready);
    const Run& run = in.destination[i];
    if (in.source.empty())
      block.recv(run.location, run.count);
    else
      block.recv_reduce_copy(in.source[i].location, run.location, run.count);
  }
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
