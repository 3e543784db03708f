#include "algorithm/parts/ring.h"

#include <algorithm>

namespace unisono::algorithm {

namespace {

// The order of nodes, and of ranks within them, is one list that begins at node 0.
int in_order(const topo::Placement& placement, int place) { return placement.rank_at(0, place); }

// Where ranks are numbered in that order, which is nearly always, without a search: 100,000 ranks
// each ask.
int place_of(const topo::Placement& placement, int rank) {
  if (in_order(placement, rank) == rank) return rank;
  int place = 0;
  while (in_order(placement, place) != rank) ++place;
  return place;
}

}  // namespace

Ring::Ring(const topo::Placement& placement, int channel, bool backward)
    : placement_(placement), channel_(channel), backward_(backward) {}

int Ring::position_of(int rank) const {
  const int ranks = placement_.ranks_on(placement_.node_of(rank));
  const int local = placement_.local_index(rank);
  const int turned = (local + ranks - channel_ % ranks) % ranks;
  const int position = place_of(placement_, rank) - local + turned;
  return backward_ ? size() - 1 - position : position;
}

int Ring::rank_at(std::int64_t position) const {
  std::int64_t wrapped = position % size();
  if (wrapped < 0) wrapped += size();
  if (backward_) wrapped = size() - 1 - wrapped;
  const int unturned = in_order(placement_, static_cast<int>(wrapped));
  const int node = placement_.node_of(unturned);
  const int ranks = placement_.ranks_on(node);
  return placement_.rank_at(node, (placement_.local_index(unturned) + channel_) % ranks);
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
