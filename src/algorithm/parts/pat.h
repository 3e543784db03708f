// The trees of PAT, Parallel Aggregated Trees. (Jeaugey: PAT: a new algorithm for all-gather and
// reduce-scatter operations at scale, 2025; NCCL 2.23.)
//
// As an all-gather. Every member's block goes down a binomial tree, far hops first: at offset o
// from where it started, it goes on to o + 2^k for each 2^k below the lowest bit of o. All members
// do the same at the same time, so one list of hops, by offset, is everybody's program: for a hop
// from o to o + 2^k a member sends the block that started o members before it 2^k further.
//
// Lanes. The tree's top, down to distance D = P / A (P: size rounded up to a power of two, A: the
// aggregation), spreads a block to the offsets 0, D, 2 D, ... These A lanes then do the same hops
// below D, and a message carries the blocks of all of them.
//
// Order. The hops below D are made depth first. So of the offsets of each lowest bit, one at a time
// is between its arrival and its last hop, and log2 D blocks a lane are enough to hold them.
//
// A reduce-scatter is the same backwards: hops reversed in direction and order.
#pragma once

#include <bit>
#include <vector>

#include "algorithm/parts/group.h"

namespace unisono::algorithm {

// A message of every member: its lanes of offset `from` go on to offset `to`, 2^bit further.
struct PatHop {
  int from = 0;
  int to = 0;
  int bit = 0;
};

// The level of an offset is its lowest bit; that of 0, where all starts, is `top`, above all
// others.
inline int pat_level(int offset, int top) {
  return offset == 0 ? top : std::countr_zero(static_cast<unsigned>(offset));
}

class PatTrees {
 public:
  // `aggregation` is a power of two; more than P / 2 of it has no use.
  PatTrees(int size, int aggregation);

  int size() const { return size_; }
  // The offsets of the lanes, in the order in which a block reaches them; 0 is the first.
  const std::vector<int>& lanes() const { return lanes_; }
  bool aggregates() const { return lanes_.size() > 1; }
  // All lanes' positions in lanes().
  std::vector<int> all_lanes() const;
  // D is 2^lane_bit; P is 2^bits.
  int lane_bit() const { return lane_bit_; }
  int bits() const { return bits_; }

  // The hop by 2^bit that adds lanes, lane_bit <= bit < bits: neighbours in lanes() give to new
  // ones, which are neighbours as well, in one message or two (the farthest lane's block may be at
  // its end already).
  struct Spread {
    std::vector<int> from;  // positions in lanes()
    int to = 0;             // the first new position
  };
  std::vector<Spread> spreads(int bit) const;

  // The hops below D.
  const std::vector<PatHop>& hops() const { return hops_; }
  // Positions of the lanes which have offset `to`: where to + lane is below the size.
  std::vector<int> lanes_with(int to) const;

  // The most blocks of a message, if lanes are neighbours in memory.
  int longest_message() const;

 private:
  void visit(int offset, int bit);

  int size_;
  int bits_;
  int lane_bit_;
  std::vector<int> lanes_;
  std::vector<PatHop> hops_;
};

// The scratch of one member: areas with a place for a block of each lane.
class PatAreas {
 public:
  // Takes `areas` of them from the phase's scratch, for blocks shaped as those of `blocks`.
  PatAreas(Phase& phase, const PatTrees& trees, const BlockMap& blocks, int areas);

  // The block that has come to this member by `offset` and the lane at `position` of lanes(): whose
  // it is, and the lanes' blocks in an area, as few messages as can be.
  int member(int offset, int position) const;
  std::vector<Run> runs(int area, int offset, const std::vector<int>& positions) const;

 private:
  const Group& group_;
  const PatTrees& trees_;
  const BlockMap& blocks_;
  int chunks_per_block_;
  int first_;     // scratch block
  int unit_ = 1;  // scratch blocks for one block
};

}  // namespace unisono::algorithm
