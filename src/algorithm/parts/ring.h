// Rings over all ranks.
#pragma once

#include <cstdint>

#include "topo/placement.h"

namespace unisono::algorithm {

// The ranks in the order in which data goes round: node after node, so that each node has one
// incoming and one outgoing edge. Channel c starts c ranks further inside every node, so that
// channels leave a node through different ranks, and their NICs; `backward` goes the other way.
class Ring {
 public:
  Ring(const topo::Placement& placement, int channel, bool backward = false);

  int size() const { return placement_.ranks(); }
  // Where nodes hold equally many ranks, numbered node after node; 0 elsewhere.
  int ranks_per_node() const { return placement_.ranks_per_node(); }
  // How many ranks further than the first one the ring starts inside every node.
  int shift() const { return channel_; }
  bool is_backward() const { return backward_; }
  int position_of(int rank) const;
  // Modulo the size.
  int rank_at(std::int64_t position) const;
  bool crosses_after(std::int64_t position) const;

  // The most edges between nodes among `hops` successive ones.
  std::int64_t max_crossings(std::int64_t hops) const;

 private:
  const topo::Placement& placement_;
  int channel_;
  bool backward_;
};

}  // namespace unisono::algorithm
