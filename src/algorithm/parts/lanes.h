// How a hierarchical algorithm divides its work: lanes between nodes, members inside them.
//
// Lane j joins the ranks of local index j of all nodes (PCCL's inter-node sub-communicators): all
// lanes are busy at once, each through another rank's NIC. There are as many lanes as ranks on the
// largest node. On a node of m ranks, lane j is run by local index j mod m, so a smaller node's
// ranks run several lanes, and every NIC of every node has its share; what lane j carries for a
// node is the block of the rank with local index j, and nothing where there is none.
#pragma once

#include <vector>

#include "algorithm/parts/group.h"
#include "topo/placement.h"

namespace unisono::algorithm {

class Lanes {
 public:
  Lanes(const topo::Placement& placement, int rank);

  int count() const { return count_; }
  int nodes() const { return placement_.nodes(); }
  int node() const { return node_; }
  int local_index() const { return local_index_; }

  // Lane j of all nodes: member n is the rank that runs it on node n.
  Group group_of(int lane) const;
  // This rank's node: member i is the rank with local index i.
  Group node_group() const;
  // The lanes that local index i of this node runs.
  std::vector<int> lanes_of(int local_index) const;

  bool carries(int lane, int node) const { return lane < placement_.ranks_on(node); }
  // Whose block lane j carries for the node; only where it carries one.
  int owner(int lane, int node) const { return placement_.rank_at(node, lane); }
  // The blocks that lane j carries.
  int blocks_in(int lane) const;
  // The place of its first block where lane follows lane and, in a lane, node follows node.
  int first_place_of(int lane) const { return lane_begin_[static_cast<std::size_t>(lane)]; }

  // The blocks of a lane, by node, on a channel: in a buffer that has one for each rank, and one
  // after another in scratch from block `first` on.
  BlockMap at_owners(int lane, plan::Buffer buffer, int chunks_per_block, int channel) const;
  BlockMap in_scratch(int lane, int first, int chunks_per_block, int channel) const;

  // Two ranks can meet in several lanes if both nodes have fewer ranks than there are lanes. Such
  // lanes have different numbers here, in 0 .. lane_channels()-1: as many successive lanes as the
  // second smallest node has ranks share one.
  int lane_channel(int lane) const { return lane / window_; }
  int lane_channels() const { return (count_ + window_ - 1) / window_; }

 private:
  const topo::Placement& placement_;
  int node_;
  int local_index_;
  int count_;
  int window_ = 1;
  std::vector<int> lane_begin_;  // place of the first block of lane j; one more at the end
};

}  // namespace unisono::algorithm
