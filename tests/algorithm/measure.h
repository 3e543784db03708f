// What a plan costs, counted on the plan itself: the other side of Entry::cost.
#pragma once

#include "algorithm/algorithm.h"
#include "plan/plan.h"
#include "topo/placement.h"

namespace unisono::algorithm {

// Runs all programs with unlimited slots. A message's place in a chain is one more than that of
// every message which its thread block has received, or waited for through `after`, before. Of
// chains, `steps` is the longest, and `steps_inter_node` the most crossings of nodes of any.
// A plan that does not end is a test failure.
Cost measure(const plan::Plan& plan, const topo::Placement& placement, double block_bytes);
// What messages that leave units of the levels take longer, on the chain where that is most.
double measured_longer_us(const plan::Plan& plan, const topo::Placement& placement);

// The operations of a thread block, loops unrolled.
std::vector<plan::Operation> operations_of(const plan::ThreadBlock& thread_block);

}  // namespace unisono::algorithm
