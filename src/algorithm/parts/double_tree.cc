#include "algorithm/parts/double_tree.h"

#include <bit>

namespace unisono::algorithm {
namespace {

TreePlace place_in_first_tree(int nodes, int node) {
  TreePlace place;
  if (node == 0) {
    if (nodes > 1)
      place.children = {static_cast<int>(std::bit_ceil(static_cast<unsigned>(nodes)) / 2)};
    return place;
  }
  const int bit = node & -node;
  place.parent = (node ^ bit) | (bit << 1);
  if (place.parent >= nodes) place.parent = node ^ bit;
  int step = bit / 2;
  if (step > 0) place.children.push_back(node - step);
  while (step > 0 && node + step >= nodes) step /= 2;
  if (step > 0) place.children.push_back(node + step);
  return place;
}

}  // namespace

TreePlace place_in_double_tree(int tree, int nodes, int node) {
  if (tree == 0) return place_in_first_tree(nodes, node);
  const bool mirrored = nodes % 2 == 0;
  const auto there = [&](int v) { return mirrored ? nodes - 1 - v : (v + nodes - 1) % nodes; };
  const auto back = [&](int v) { return mirrored ? nodes - 1 - v : (v + 1) % nodes; };
  TreePlace place = place_in_first_tree(nodes, there(node));
  if (place.parent >= 0) place.parent = back(place.parent);
  for (int& child : place.children) child = back(child);
  return place;
}

int depth_in_double_tree(int tree, int nodes, int node) {
  int depth = 0;
  while ((node = place_in_double_tree(tree, nodes, node).parent) >= 0) ++depth;
  return depth;
}

}  // namespace unisono::algorithm
