// A plan cut into phases, where ranks of one node reach each other by another engine than ranks of
// different nodes do.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace unisono::plan {

// One rank's program: thread blocks whose peers are on its node, or that have none; those whose
// peers are on other nodes; and those of its node again, which wait for any of these. Each phase is
// complete before the next begins. What is left of the plan's dependencies is inside the phases.
struct Phases {
  RankProgram before;
  RankProgram between;
  RankProgram after;
};

// The phases of the ranks of a node, from the programs of all of them; both ends of a connection
// have it in the same phase. Nothing where a thread block has peers inside the node and outside it,
// where one with peers outside waits for what comes after others of them, and where there are
// one-sided steps or barriers.
//
// A plan that is right is right in phases: they add dependencies from a phase to the one before,
// never back, and every message is sent and received in one phase.
std::optional<std::vector<Phases>> cut(std::span<const RankProgram> programs,
                                       const std::function<bool(int rank)>& is_on_node);

// Chunks first .. first + count - 1 of a buffer.
struct ChunkRange {
  Buffer buffer = Buffer::input;
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool operator==(const ChunkRange&) const = default;
};
// What the steps of a program read as their source or add to, and what they write, in the order of
// buffers and chunks; neighbours are one range.
std::vector<ChunkRange> chunks_read(const RankProgram& program);
std::vector<ChunkRange> chunks_written(const RankProgram& program);

}  // namespace unisono::plan
