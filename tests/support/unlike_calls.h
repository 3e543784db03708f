// Calls of the ranks of a group that do not match, and what each rank must be told of them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/ranks.h"

namespace unisono::test {

bool contains(std::string_view text, std::string_view part);

// run_checked() with a deadline that no test waits for: what does not match is found before.
std::string checked(Communicator& group, const CheckedCall& call);

// What the ranks of a group call; the last rank's is another call.
struct Unlike {
  std::string name;
  // Empty where the call succeeded with the right data, or defines none; else what went wrong.
  std::function<std::string(Communicator& group, bool is_last)> run;
  std::string of_most;   // how an error describes the call of the others,
  std::string of_one;    // and of the last rank
  bool may_end = false;  // where no rank waits for another, the barrier that follows tells
};

// Each on a group of its own, for which all ranks call `prepare` before. No rank has wrong data;
// one at least finds out in its call, and every rank is told, there or in the barrier that follows,
// long before the deadline.
void expect_named(const RanksOptions& options, const std::vector<Unlike>& all,
                  const std::function<void(Communicator&)>& prepare = {});

}  // namespace unisono::test
