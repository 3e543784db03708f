// Runs a scenario in the simulated world, on the product's own code, and judges what came of it.
//
// What must hold: a call that reports success has the right result; nobody waits much past a
// deadline; an error names a rank that was struck; the ranks that remain shrink and go on; in the
// end nothing is left of connections, streams and threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "chaos/scenario.h"

namespace unisono::chaos {

struct Moment {
  std::int64_t time_ns = 0;
  int rank = -1;
  std::string what;
};

struct Outcome {
  std::vector<std::string> wrong;  // what did not hold; empty: all did
  std::uint64_t hash = 0;          // of all events, in order
  std::int64_t virtual_ns = 0;
  std::uint64_t events = 0;
  std::uint64_t calls = 0;     // that succeeded, over all ranks
  std::uint64_t failures = 0;  // calls that ended in an error
  bool has_struck = false;
  std::vector<Moment> moments;  // in order of time
  // How often ranks came to each place: "3 call/transport.put".
  std::map<std::pair<int, std::string>, std::uint64_t> places;
};

Outcome play(const Scenario& scenario);

// The scenario of a seed with its strikes, which are drawn from the places of a run without any.
Scenario scenario_of(std::uint64_t seed, const Options& options);

// The shortest scenario found that still fails: in that way, or in the same as `outcome` did.
Scenario shrink(const Scenario& scenario, const std::function<bool(const Scenario&)>& fails);
Scenario shrink(const Scenario& scenario, const Outcome& outcome);

// A failing run for people: what was to happen, and what did.
std::string story(const Scenario& scenario, const Outcome& outcome);

}  // namespace unisono::chaos
