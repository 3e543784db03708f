// One step of an algorithm between two or three ranks, in as many messages as memory needs.
#pragma once

#include <vector>

#include "algorithm/parts/group.h"

namespace unisono::algorithm {

// What is received in a step, and where to.
struct Incoming {
  std::vector<Run> destination{};
  std::vector<Run> source{};  // added to what arrives, run by run; empty: nothing is
  Ready ready{};              // before the first of it is taken
};

// Appends sends of all runs, receives of all runs.
void send_runs(plan::BlockBuilder& block, const std::vector<Run>& runs);
void receive_runs(plan::BlockBuilder& block, const Incoming& in);

// Sends `out` to rank `to` and receives `in` from rank `from`, all after `start`: with one message
// each way in one thread block, unless the phase overlaps tiles; with more in two, so that no
// message waits for one that comes the other way, and one slot is enough. Ranks without anything to
// send or receive are not looked at. Returns the completion of all of it.
Ready exchange(Phase& phase, const Ready& start, int to, const std::vector<Run>& out, int from,
               const Incoming& in);

// The same cuts in other memory: `runs`, which start at `from`, moved to start at `to`.
std::vector<Run> moved(std::vector<Run> runs, std::int64_t from, plan::Location to);

// The runs of this member's own block, in `map` and at `place`.
std::vector<Run> own_runs(const BlockMap& map, const Group& group);
std::vector<Run> own_runs(const BlockMap& map, const Group& group, plan::Location place);

// Copies run by run; nothing where source and destination are the same.
void copy_runs(plan::BlockBuilder& block, const std::vector<Run>& source,
               const std::vector<Run>& destination);

// Copies this member's block from `own` to its place, in a thread block of its own, unless it is
// there. What it returns must be complete before the place is read.
Ready place_own_block(Phase& phase, plan::Location own, const BlockMap& blocks);

// Joins two.
Ready both(Ready a, const Ready& b);

}  // namespace unisono::algorithm
