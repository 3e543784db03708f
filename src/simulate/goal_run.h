// Runs GOAL schedules in simulated time, as LogGOPSim does, and equal to it where it is right.
//
// A send takes o + (s-1) O of its cpu and g + (s-1) G of its port. L after its start and o, the
// message takes o + (s-1) max(O, G) of the receiver's cpu (of the number that the sender has) and
// g + (s-1) G of its port, posted or not. A send of more than the rendezvous size has ended when it
// is matched. Unlike LogGOPSim, an operation on another cpu than what it requires does not begin
// before that has ended, and a message of no bytes takes no negative time.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <vector>

#include "simulate/goal.h"
#include "simulate/machine.h"
#include "simulate/progress.h"

namespace unisono::simulate::goal {

struct Options {
  // Larger messages wait for their receive.
  std::uint64_t rendezvous_bytes = max_size;
  std::uint64_t max_events = std::uint64_t{1} << 36;
  Progress* progress = nullptr;  // must outlive the run
};

struct RunResult {
  Time finished = 0;  // the last rank's last cpu
  int last_rank = 0;
  std::vector<Time> ranks;  // when each rank's last cpu was free
  std::int64_t operations = 0;
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
  std::uint64_t events = 0;
  std::size_t pending_events = 0;  // most at one time
};

// Ranks fill one node of the machine after another; costs are those of its Simple protocol without
// the launch. On a machine of one node, `nic` picks one of the rank's own ports. Misuse if the
// machine has too few places, or for operations that never end, with who waits for whom, or for
// messages that nobody receives.
Result<RunResult> run(const Machine& machine, const Schedule& schedule, const Options& options);

}  // namespace unisono::simulate::goal
