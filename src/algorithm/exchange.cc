#include "algorithm/exchange.h"

namespace unisono::algorithm {

std::shared_ptr<const plan::Exchange> exchange_of(const Entry& entry, const Request& request) {
  // Before the programs of all ranks are made.
  if (request.channels != 1 || request.placement.ranks() > plan::exchange_max_ranks) return nullptr;
  const auto plan = make_plan(entry, request);
  return plan.ok() ? plan::shared_exchange_of(*plan) : nullptr;
}

}  // namespace unisono::algorithm
