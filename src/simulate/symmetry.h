// How the programs of all ranks follow from those of the first few: an algorithm's symmetry, on one
// placement.
#pragma once

#include "algorithm/algorithm.h"

namespace unisono::simulate {

// The program of a rank is that of its pattern, one of the ranks 0 .. patterns() - 1, with every
// peer carried to where it is from the rank.
class Symmetry {
 public:
  // Every rank is its own pattern.
  static Symmetry none(int ranks) { return {algorithm::Symmetry::none, ranks, ranks}; }
  // An algorithm's. None where nodes hold unequal numbers of ranks, or in another order.
  static Symmetry of(algorithm::Symmetry kind, const topo::Placement& placement) {
    const int ranks = placement.ranks();
    const int per_node = placement.ranks_per_node();
    const bool whole_nodes = per_node > 0 && ranks % per_node == 0;
    const bool powers = (ranks & (ranks - 1)) == 0;  // and so their divisor per_node, too
    if (!whole_nodes || kind == algorithm::Symmetry::none) return none(ranks);
    if (kind == algorithm::Symmetry::exclusive_or && !powers) return none(ranks);
    return {kind, ranks, per_node};
  }

  bool is_trivial() const { return patterns_ == ranks_; }
  int patterns() const { return patterns_; }
  int pattern_of(int rank) const { return rank % patterns_; }
  // Whom `rank` meets where its pattern meets `peer`.
  int carried(int rank, int peer) const {
    const int shift = rank - pattern_of(rank);
    if (kind_ == algorithm::Symmetry::exclusive_or) return peer ^ shift;
    const int moved = peer + shift;
    return moved < ranks_ ? moved : moved - ranks_;
  }
  // Whom the pattern of `rank` meets where `rank` meets `peer`.
  int carried_back(int rank, int peer) const {
    const int shift = rank - pattern_of(rank);
    if (kind_ == algorithm::Symmetry::exclusive_or) return peer ^ shift;
    const int moved = peer - shift;
    return moved >= 0 ? moved : moved + ranks_;
  }

 private:
  Symmetry(algorithm::Symmetry kind, int ranks, int patterns)
      : kind_(kind), ranks_(ranks), patterns_(patterns) {}

  algorithm::Symmetry kind_;
  int ranks_;
  int patterns_;
};

}  // namespace unisono::simulate
