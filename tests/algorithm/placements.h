// Placements on which the algorithms are tested.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/str.h"
#include "topo/placement.h"

namespace unisono::algorithm {

struct NamedPlacement {
  std::string name;
  topo::Placement placement;
};

// One node; two equal ones if even; one rank a node; blocks of 1, 2, 3, ... ranks; all on one node
// but the last rank; round robin over three nodes; a random one, fixed by the number of ranks; of 9
// ranks, two with nodes of 1, 1, 2 and 4 ranks in other orders, where ranks serve several lanes.
inline std::vector<NamedPlacement> placements_of(int ranks) {
  std::vector<NamedPlacement> result;
  const auto add = [&](const char* name, Result<topo::Placement> placement) {
    ASSERT_TRUE(placement.ok());
    result.push_back({name, std::move(placement).value()});
  };
  result.push_back({"one node", topo::Placement::single_node(ranks)});
  if (ranks < 2) return result;
  result.push_back({"a rank on each node", topo::Placement::uniform(ranks, 1)});
  for (int nodes : {2, 3, 4})
    if (ranks % nodes == 0 && ranks > nodes)
      result.push_back(
          {str(nodes, " equal nodes"), topo::Placement::uniform(nodes, ranks / nodes)});

  std::vector<int> sizes;
  int left = ranks;
  for (int size = 1; left > 0; ++size) {
    sizes.push_back(std::min(size, left));
    left -= sizes.back();
  }
  add("growing nodes", topo::Placement::blocks(sizes));
  add("all but one", topo::Placement::blocks(std::vector<int>{ranks - 1, 1}));

  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank) node_of.push_back(rank % std::min(ranks, 3));
  add("round robin", topo::Placement::from_nodes(node_of));

  std::mt19937 random(static_cast<unsigned>(ranks));
  const int nodes = std::max(2, ranks / 3);
  for (int rank = 0; rank < ranks; ++rank)
    node_of[static_cast<std::size_t>(rank)] =
        rank < nodes ? rank : static_cast<int>(random() % static_cast<unsigned>(nodes));
  std::shuffle(node_of.begin(), node_of.end(), random);
  add("random", topo::Placement::from_nodes(node_of));
  if (ranks == 9) {
    add("four before two", topo::Placement::from_nodes(std::vector{0, 1, 2, 2, 2, 2, 3, 3, 4}));
    add("two before four", topo::Placement::from_nodes(std::vector{0, 1, 2, 2, 3, 3, 3, 3, 4}));
  }
  return result;
}

}  // namespace unisono::algorithm
