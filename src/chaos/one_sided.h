// Plans of one-sided steps, which no built-in algorithm has.
#pragma once

#include <unisono/types.h>

#include <string>

namespace unisono::chaos {

// All-gathers put each block into every output. In all-reduces a rank reads one chunk of all
// inputs, and puts the sum into every scratch once all of its thread blocks have met; the others
// copy it from there.
std::string one_sided_plan(Collective collective, int ranks);

}  // namespace unisono::chaos
