// A second opinion on plans that shares nothing with src/verify: runs them on random numbers, in a
// random order, and looks at what comes out.
//
// One run proves little; many runs with other seeds, counts, slots and orders seldom let a wrong
// plan pass. Where it accuses, it is right: it has seen the plan go wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plan/plan.h"

namespace unisono::test {

struct RunOptions {
  std::uint64_t seed = 1;
  int slots = 8;
  int tiles = 1;
  // Messages lie in the sender's memory until they are taken, and steps that overwrite them wait.
  bool zero_copy = false;
  // Elements of a block; in all_to_all_v blocks have random counts of 0 to this.
  std::int64_t count = 5;
};

// What went wrong, in a sentence; nothing if all was right. The plan must pass plan::check.
std::optional<std::string> run_once(const plan::Plan& plan, const RunOptions& options);

// `runs` runs with random options, slots being `least_slots` or more; the first thing that went
// wrong.
std::optional<std::string> find_fault(const plan::Plan& plan, int runs, std::uint64_t seed,
                                      int least_slots);

}  // namespace unisono::test
