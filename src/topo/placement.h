// Which node each rank is on, and where nodes are: all that the algorithms need to know of a
// cluster.
#pragma once

#include <unisono/result.h>

#include <memory>
#include <span>
#include <vector>

#include "topo/levels.h"

namespace unisono::topo {

// Ranks and nodes are numbered from 0. Nodes may hold unequal numbers of ranks, in any order of
// ranks; within a node, ranks are ordered by rank number (local index 0, 1, ...).
class Placement {
 public:
  static Placement single_node(int ranks);
  // Ranks 0 .. n-1 on node 0, n .. 2n-1 on node 1, and so on.
  static Placement uniform(int nodes, int ranks_per_node);
  // Consecutive ranks, ranks_per_node[i] of them on node i; every entry at least 1.
  static Result<Placement> blocks(std::span<const int> ranks_per_node);
  // node_of_rank[r] in 0 .. nodes-1, every node used.
  static Result<Placement> from_nodes(std::span<const int> node_of_rank);
  // The same on nodes with levels, numbered anew so that those of a unit follow each other: what
  // goes from node to node in order leaves each unit once.
  static Result<Placement> near(std::span<const int> node_of_rank, const Levels& levels);
  // The same with levels, of as many nodes or none.
  Result<Placement> with(Levels levels) const;
  // Each node's first rank alone: rank i is the one on node i.
  Placement one_rank_per_node() const;

  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(first_.size()) - 1; }
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  int local_index(int rank) const { return local_index_[static_cast<std::size_t>(rank)]; }
  int ranks_on(int node) const {
    return first_[static_cast<std::size_t>(node) + 1] - first_[static_cast<std::size_t>(node)];
  }
  int rank_at(int node, int local_index) const {
    return order_[static_cast<std::size_t>(first_[static_cast<std::size_t>(node)] + local_index)];
  }
  bool same_node(int a, int b) const { return node_of(a) == node_of(b); }
  // Every node holds the same number of ranks.
  bool is_uniform() const;
  int max_ranks_on_a_node() const;
  // If rank r is on node r / n for some n, that n; otherwise 0.
  int ranks_per_node() const { return ranks_per_node_; }
  // Empty where nothing is known.
  const Levels& levels() const;
  // How many levels a message between ranks of different nodes leaves, as Levels counts them.
  int levels_left(int a, int b) const { return levels().left_between(node_of(a), node_of(b)); }

 private:
  explicit Placement(std::vector<int> node_of_rank, int nodes);

  std::vector<int> node_of_;      // by rank
  std::vector<int> local_index_;  // by rank
  std::vector<int> order_;        // ranks, node after node
  int ranks_per_node_ = 0;
  std::vector<int> first_;                // by node, where it starts in order_; one more at the end
  std::shared_ptr<const Levels> levels_;  // null: none
};

}  // namespace unisono::topo
