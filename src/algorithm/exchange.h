// What the plans of an algorithm exchange (plan/exchange.h).
#pragma once

#include <memory>

#include "algorithm/algorithm.h"
#include "plan/exchange.h"

namespace unisono::algorithm {

// Null where plan::exchange_of() knows none, and for requests that the algorithm does not support.
std::shared_ptr<const plan::Exchange> exchange_of(const Entry& entry, const Request& request);

}  // namespace unisono::algorithm
