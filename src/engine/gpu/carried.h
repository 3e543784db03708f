// Which plans go by kernels of their own, or by copies straight to where they are wanted.
//
// Each of these says by built-in algorithms what it carries: the plans of an algorithm, and every
// other plan that moves and adds the same (plan/exchange.h), whatever it is called.
#pragma once

#include "algorithm/algorithm.h"
#include "plan/plan.h"

namespace unisono::engine::gpu {

// The algorithm, of those that something carries, whose plan moves and adds the same as this one;
// null if there is none. Of the whole plan, so that all ranks come to the same.
const algorithm::Entry* reference_of(const plan::Plan& plan);

}  // namespace unisono::engine::gpu
