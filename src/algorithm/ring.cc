#include "algorithm/ring.h"

#include <algorithm>

namespace unisono::algorithm {

Ring::Ring(const topo::Placement& placement, int channel, bool backward) : placement_(placement) {
  order_.reserve(static_cast<std::size_t>(placement.ranks()));
  for (int node = 0; node < placement.nodes(); ++node) {
    const int ranks = placement.ranks_on(node);
    for (int i = 0; i < ranks; ++i)
      order_.push_back(placement.rank_at(node, (i + channel) % ranks));
  }
  if (backward) std::reverse(order_.begin(), order_.end());
}

int Ring::position_of(int rank) const {
  return static_cast<int>(std::find(order_.begin(), order_.end(), rank) - order_.begin());
}

int Ring::rank_at(std::int64_t position) const {
  const std::int64_t wrapped = position % size();
  return order_[static_cast<std::size_t>(wrapped < 0 ? wrapped + size() : wrapped)];
}

bool Ring::crosses_after(std::int64_t position) const {
  return !placement_.same_node(rank_at(position), rank_at(position + 1));
}

std::int64_t Ring::max_crossings(std::int64_t hops) const {
  std::int64_t crossings = 0;
  for (std::int64_t i = 0; i < hops; ++i) crossings += crosses_after(i) ? 1 : 0;
  std::int64_t most = crossings;
  for (std::int64_t first = 0; first < size(); ++first) {
    crossings += (crosses_after(first + hops) ? 1 : 0) - (crosses_after(first) ? 1 : 0);
    most = std::max(most, crossings);
  }
  return most;
}

}  // namespace unisono::algorithm
