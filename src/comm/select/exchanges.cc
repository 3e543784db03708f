#include "comm/select/exchanges.h"

namespace unisono::comm {

const plan::Exchange* Exchanges::of(const algorithm::Entry& entry, int ranks) const {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = known_.try_emplace({&entry, ranks});
  if (is_new)
    found->second = algorithm::exchange_of(
        entry, {.collective = entry.collective, .placement = topo::Placement::single_node(ranks)});
  return found->second.get();
}

}  // namespace unisono::comm
