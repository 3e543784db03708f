#include "algorithm/parts/lanes.h"

#include <algorithm>

namespace unisono::algorithm {

Lanes::Lanes(const topo::Placement& placement, int rank)
    : placement_(placement),
      node_(placement.node_of(rank)),
      local_index_(placement.local_index(rank)),
      count_(placement.max_ranks_on_a_node()),
      lane_begin_(static_cast<std::size_t>(count_) + 1) {
  std::vector<int> nodes_with(static_cast<std::size_t>(count_) + 1);
  for (int node = 0; node < nodes(); ++node)
    ++nodes_with[static_cast<std::size_t>(placement.ranks_on(node))];

  int carrying = nodes();
  for (std::size_t lane = 0; lane + 1 < lane_begin_.size(); ++lane) {
    carrying -= nodes_with[lane];
    lane_begin_[lane + 1] = lane_begin_[lane] + carrying;
  }
  int counted = 0;
  for (std::size_t ranks = 0; counted < std::min(2, nodes()); ++ranks) {
    counted += nodes_with[ranks];
    window_ = static_cast<int>(ranks);
  }
}

Group Lanes::group_of(int lane) const {
  std::vector<int> ranks;
  for (int node = 0; node < nodes(); ++node)
    ranks.push_back(placement_.rank_at(node, lane % placement_.ranks_on(node)));
  return Group::of(std::move(ranks), node_);
}

Group Lanes::node_group() const {
  std::vector<int> ranks;
  for (int i = 0; i < placement_.ranks_on(node_); ++i)
    ranks.push_back(placement_.rank_at(node_, i));
  return Group::of(std::move(ranks), local_index_);
}

std::vector<int> Lanes::lanes_of(int local_index) const {
  std::vector<int> lanes;
  for (int lane = local_index; lane < count_; lane += placement_.ranks_on(node_))
    lanes.push_back(lane);
  return lanes;
}

BlockMap Lanes::at_owners(int lane, plan::Buffer buffer, int chunks_per_block, int channel) const {
  std::vector<std::int64_t> first;
  std::vector<int> chunks;
  for (int node = 0; node < nodes(); ++node) {
    const std::int64_t block = carries(lane, node) ? owner(lane, node) : 0;
    first.push_back(block * chunks_per_block + channel);
    chunks.push_back(carries(lane, node) ? 1 : 0);
  }
  return BlockMap::table(buffer, std::move(first), std::move(chunks));
}

BlockMap Lanes::in_scratch(int lane, int first_block, int chunks_per_block, int channel) const {
  std::vector<std::int64_t> first;
  std::vector<int> chunks;
  std::int64_t block = first_block;
  for (int node = 0; node < nodes(); ++node) {
    first.push_back(block * chunks_per_block + channel);
    chunks.push_back(carries(lane, node) ? 1 : 0);
    block += chunks.back();
  }
  return BlockMap::table(plan::Buffer::scratch, std::move(first), std::move(chunks));
}

int Lanes::blocks_in(int lane) const {
  const auto j = static_cast<std::size_t>(lane);
  return lane_begin_[j + 1] - lane_begin_[j];
}

}  // namespace unisono::algorithm
