// Which algorithms' plans the GPU engine's specialised kernels and zero-copy carry.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "algorithm/exchange.h"
#include "engine/gpu/copy_program.h"
#include "engine/gpu/ll128_all_pairs.h"
#include "engine/gpu/ll_all_pairs.h"

namespace unisono::test {

inline std::shared_ptr<const plan::Exchange> exchange_of(const algorithm::Entry& entry, int ranks) {
  return algorithm::exchange_of(
      entry, {.collective = entry.collective, .placement = topo::Placement::single_node(ranks)});
}

inline std::optional<device::LlKind> ll_kind(const algorithm::Entry& entry, int ranks) {
  const auto exchange = exchange_of(entry, ranks);
  return exchange ? engine::gpu::ll_kind(*exchange) : std::nullopt;
}

inline int ll128_hops(const algorithm::Entry& entry, int ranks) {
  const auto exchange = exchange_of(entry, ranks);
  return exchange ? engine::gpu::ll128_hops(*exchange) : 0;
}

inline int zero_copy_hops(const algorithm::Entry& entry, int ranks) {
  const auto exchange = exchange_of(entry, ranks);
  return exchange ? engine::gpu::zero_copy_hops(*exchange) : 0;
}

// The algorithms whose plans have an exchange, one for each that there is: of few ranks, several do
// the same.
inline std::vector<std::reference_wrapper<const algorithm::Entry>> entries_by_exchange(int ranks) {
  std::vector<std::reference_wrapper<const algorithm::Entry>> out;
  std::vector<std::pair<Collective, plan::Exchange>> known;
  for (const algorithm::Entry& entry : algorithm::entries()) {
    const auto exchange = exchange_of(entry, ranks);
    if (!exchange) continue;
    const std::pair one{entry.collective, *exchange};
    if (std::ranges::count(known, one) > 0) continue;
    known.push_back(one);
    out.push_back(entry);
  }
  return out;
}

}  // namespace unisono::test
