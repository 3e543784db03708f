// Rings over all ranks, and writing the steps that go around them in few loops.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/builder.h"
#include "topo/placement.h"

namespace unisono::algorithm {

// The ranks in the order in which data goes round: node after node, so that each node has one
// incoming and one outgoing edge. Channel c starts c ranks further inside every node, so that
// channels leave a node through different ranks, and their NICs; `backward` goes the other way.
class Ring {
 public:
  Ring(const topo::Placement& placement, int channel, bool backward = false);

  int size() const { return static_cast<int>(order_.size()); }
  int position_of(int rank) const;
  // Modulo the size.
  int rank_at(std::int64_t position) const;
  bool crosses_after(std::int64_t position) const;

  // The most edges between nodes among `hops` successive ones.
  std::int64_t max_crossings(std::int64_t hops) const;

 private:
  const topo::Placement& placement_;
  std::vector<int> order_;
};

// Appends body(index) for each of `values` in turn, all in 0 .. modulus-1, with loops wherever
// they are arithmetic progressions modulo `modulus`, or progressions of such. The index that
// `body` gets is offset + scale * value; it must add steps that depend on it alone.
void for_each_value(plan::BlockBuilder& block, const std::vector<std::int64_t>& values,
                    std::int64_t modulus, std::int64_t scale, std::int64_t offset,
                    const std::function<void(plan::Index)>& body);

// The ranks that a ring visits from `position` on, going back, `count` of them.
std::vector<std::int64_t> ranks_going_back(const Ring& ring, std::int64_t position, int count);

}  // namespace unisono::algorithm
