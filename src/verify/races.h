// Races between thread blocks of one rank.
//
// Two steps are ordered if program order, `after` and barriers say so; that a message may order
// them too does not count. Whoever touches a chunk that another thread block writes must come
// before or after it in that order.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "verify/memory.h"
#include "verify/verify.h"

namespace unisono::verify {

// The first race of each rank, of at most `most` ranks.
std::vector<Failure> find_races(const plan::Plan& plan, const Memory& memory, std::size_t most);

}  // namespace unisono::verify
