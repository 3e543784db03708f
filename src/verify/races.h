// Races: a step that touches a chunk which another thread block writes must be ordered with it.
//
// Among a rank's own thread blocks, only program order, `after` and barriers count; that a message
// may order them too does not. Plans with put or read_reduce are looked at once more with all ranks
// together, where messages and tokens count: there a rank also touches the memory of others.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "verify/memory.h"
#include "verify/verify.h"

namespace unisono::verify {

// The first race of each rank, of at most `most` ranks.
std::vector<Failure> find_races(const plan::Plan& plan, const Memory& memory, std::size_t most);

}  // namespace unisono::verify
