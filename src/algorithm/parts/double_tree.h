// The double binary tree over nodes: two binary trees such that the work of both is spread evenly.
//
// In the first, node 0 is the root and has one child; node v > 0 with lowest set bit b has the
// children v - b/2 and v + b/2 (made smaller until it exists), so odd nodes are the leaves. The
// second is the first with the nodes mirrored (v -> N-1-v) when N is even, or shifted by one
// (v -> v-1 mod N) when N is odd: nodes that are leaves in one are not in the other, but for node 0
// when N is odd. (Sanders, Speck and Träff 2007, in the arithmetic of NCCL.)
#pragma once

#include <vector>

namespace unisono::algorithm {

struct TreePlace {
  int parent = -1;            // -1 for the root
  std::vector<int> children;  // at most 2
};

// `tree` is 0 or 1.
TreePlace place_in_double_tree(int tree, int nodes, int node);

// Edges between a node and the root.
int depth_in_double_tree(int tree, int nodes, int node);

}  // namespace unisono::algorithm
