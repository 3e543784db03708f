#include "algorithm/phases.h"

#include <algorithm>
#include <bit>

namespace unisono::algorithm {
namespace {

// Whether a renumbering of whole nodes makes the programs of each node those of any other.
bool has_like_nodes(const Entry& entry, const Request& request) {
  const topo::Placement& placement = request.placement;
  if (!placement.is_uniform() || placement.ranks_per_node() == 0) return false;
  const Symmetry symmetry = entry.symmetry(request);
  return symmetry == Symmetry::rotation ||
         (symmetry == Symmetry::exclusive_or &&
          std::has_single_bit(static_cast<unsigned>(placement.ranks())));
}

}  // namespace

std::optional<RankPhases> phases_of(const Entry& entry, const Request& request, int rank,
                                    const RunsInside& runs_inside) {
  const topo::Placement& placement = request.placement;
  if (placement.nodes() == 1 || placement.max_ranks_on_a_node() == 1 ||
      request.collective == Collective::all_to_all_v)
    return std::nullopt;
  const auto header = make_header(entry, request);
  if (!header.ok()) return std::nullopt;
  RankPhases out;
  const bool is_one_for_all = has_like_nodes(entry, request);
  for (int node = 0; node < placement.nodes(); ++node) {
    const bool is_own = node == placement.node_of(rank);
    if (is_one_for_all && !is_own) continue;
    std::vector<plan::RankProgram> programs;
    for (int i = 0; i < placement.ranks_on(node); ++i) {
      auto program = make_program(entry, request, placement.rank_at(node, i));
      if (!program.ok()) return std::nullopt;
      programs.push_back(std::move(*program));
    }
    auto phases = plan::cut(programs, [&](int peer) { return placement.node_of(peer) == node; });
    if (!phases) return std::nullopt;
    for (const plan::Phases& one : *phases)
      for (const plan::RankProgram* inside : {&one.before, &one.after}) {
        if (!runs_inside(*header, *inside)) return std::nullopt;
        out.thread_blocks =
            std::max(out.thread_blocks, static_cast<int>(inside->thread_blocks.size()));
      }
    if (is_own)
      out.mine = std::move((*phases)[static_cast<std::size_t>(placement.local_index(rank))]);
  }
  // Nothing inside nodes: there is nothing to gain.
  if (out.thread_blocks == 0) return std::nullopt;
  return out;
}

}  // namespace unisono::algorithm
