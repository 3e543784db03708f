// Calls of which some ranks are in place and others are not, of registered and of built-in plans: a
// rank knows its own place alone, so every rank must run the same plan, and get what it should.
#pragma once

#include <unisono/communicator.h>

#include <span>
#include <string>
#include <vector>

#include "support/ranks.h"
#include "topo/placement.h"

namespace unisono::test {

struct PlaceCases {
  topo::Placement placement;
  bool have_root = false;      // the collectives
  bool are_few = false;        // two places of each form, for engines that take long
  bool are_registered = true;  // else built-in plans are called by their names
  // Which calls a rank makes on which memory: host memory if it is empty.
  CheckedCall::Run run;
  Protocol protocol = Protocol::simple;
  std::span<const std::int64_t> counts;
  std::uint64_t seed = 1;
};

struct PlacesTried {
  int calls = 0;
  std::string wrong;  // the first call that was not right
};

// Every algorithm in every place. Collective.
PlacesTried call_from_every_place(Communicator& communicator, const PlaceCases& cases);

}  // namespace unisono::test
