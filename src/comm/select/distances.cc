#include "comm/select/distances.h"

#include "base/str.h"
#include "base/units.h"
#include "comm/select/selection.h"
#include "plan/walk.h"

namespace unisono::comm {
namespace {

// A plan has some p^2 messages, and each of them is visited.
constexpr int most_ranks = 512;

bool moves(plan::Operation operation) {
  return plan::sends(operation) || operation == plan::Operation::put;
}

}  // namespace

PlanCandidate described(const Candidate& candidate) {
  return {.algorithm = std::string(candidate.choice.entry->name),
          .protocol = candidate.choice.protocol,
          .channels = candidate.choice.channels,
          .time_us = candidate.time_us,
          .longer_us = candidate.longer_us,
          .steps = candidate.cost.steps,
          .steps_inter_node = candidate.cost.steps_inter_node,
          .bytes_sent = candidate.cost.bytes_sent,
          .bytes_sent_inter_node = candidate.cost.bytes_sent_inter_node};
}

std::string describe(const topo::Levels& levels) {
  std::string out;
  for (int level = 0; level < levels.count(); ++level) {
    const int units = levels.units(level);
    append(out,
           str(out.empty() ? "" : ", ", units, " ", levels.name(level), units == 1 ? "" : "s"));
    if (levels.leaving_ns(level) > 0)
      append(out, str(" (+", format_duration_ns(levels.leaving_ns(level)), ")"));
  }
  return out;
}

std::vector<PlanDistance> distances_of(const algorithm::Entry& entry,
                                       const algorithm::Request& request, double block_bytes) {
  const topo::Placement& placement = request.placement;
  const topo::Levels& levels = placement.levels();
  if (levels.empty() || placement.ranks() > most_ranks) return {};
  std::vector<PlanDistance> out{{.where = "inside a node"}};
  for (int left = 0; left <= levels.count(); ++left)
    out.push_back({.where = levels.crossing(left), .longer_us = levels.longer_us(left)});
  const double chunk_bytes = block_bytes / entry.header(request).chunks_per_block;
  for (int rank = 0; rank < placement.ranks(); ++rank)
    for (const plan::ThreadBlock& block : entry.program(request, rank).thread_blocks)
      for (plan::StepCursor at(block.body); at.step() != nullptr; at.advance()) {
        if (!moves(at.step()->operation)) continue;
        const bool is_inside = placement.same_node(rank, block.send_peer);
        PlanDistance& one =
            out[is_inside
                    ? 0
                    : 1 + static_cast<std::size_t>(placement.levels_left(rank, block.send_peer))];
        ++one.messages;
        one.bytes += chunk_bytes * at.step()->count;
      }
  return out;
}

}  // namespace unisono::comm
