#include "algorithm/parts/pat.h"

#include <algorithm>
#include <numeric>

#include "algorithm/parts/powers.h"

namespace unisono::algorithm {

PatTrees::PatTrees(int size, int aggregation) : size_(size), bits_(ceil_log2(size)), lanes_{0} {
  lane_bit_ = std::max(bits_ - ceil_log2(aggregation), std::min(bits_, 1));
  for (int bit = bits_ - 1; bit >= lane_bit_; --bit) {
    const std::size_t reached = lanes_.size();
    for (std::size_t i = 0; i < reached; ++i)
      if (lanes_[i] + (1 << bit) < size) lanes_.push_back(lanes_[i] + (1 << bit));
  }
  visit(0, lane_bit_);
}

void PatTrees::visit(int offset, int bit) {
  while (--bit >= 0) {
    const int to = offset + (1 << bit);
    if (to >= size_) continue;
    hops_.push_back({offset, to, bit});
    visit(to, bit);
  }
}

std::vector<int> PatTrees::all_lanes() const {
  std::vector<int> positions(lanes_.size());
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

std::vector<PatTrees::Spread> PatTrees::spreads(int bit) const {
  // Lanes that are there before this hop are multiples of 2^(bit + 1), and come first.
  std::vector<Spread> spreads;
  int next = static_cast<int>(
      std::ranges::count_if(lanes_, [bit](int lane) { return lane % (2 << bit) == 0; }));
  const int before = next;
  for (int position = 0; position < before; ++position) {
    if (lanes_[static_cast<std::size_t>(position)] + (1 << bit) >= size_) continue;
    if (spreads.empty() || spreads.back().from.back() != position - 1)
      spreads.push_back({{}, next});
    spreads.back().from.push_back(position);
    ++next;
  }
  return spreads;
}

std::vector<int> PatTrees::lanes_with(int to) const {
  std::vector<int> positions = all_lanes();
  std::erase_if(positions, [&](int position) {
    return lanes_[static_cast<std::size_t>(position)] + to >= size_;
  });
  return positions;
}

int PatTrees::longest_message() const {
  std::size_t longest = 1;
  for (int bit = lane_bit_; bit < bits_; ++bit)
    for (const Spread& spread : spreads(bit)) longest = std::max(longest, spread.from.size());
  for (const PatHop& hop : hops_) {
    std::size_t neighbours = 0;
    int previous = -1;
    for (int position : lanes_with(hop.to)) {
      neighbours = position == previous + 1 ? neighbours + 1 : 1;
      longest = std::max(longest, neighbours);
      previous = position;
    }
  }
  return static_cast<int>(longest);
}

PatAreas::PatAreas(Phase& phase, const PatTrees& trees, const BlockMap& blocks, int areas)
    : group_(phase.group),
      trees_(trees),
      blocks_(blocks),
      chunks_per_block_(phase.chunks_per_block),
      first_(phase.first_scratch_block) {
  for (int block = 0; block < trees.size(); ++block) {
    const auto place = static_cast<int>(blocks.first_chunk(block) % chunks_per_block_);
    const int chunks = place + blocks.chunks(block);
    unit_ = std::max(unit_, (chunks + chunks_per_block_ - 1) / chunks_per_block_);
  }
  phase.first_scratch_block += areas * static_cast<int>(trees.lanes().size()) * unit_;
  phase.program.need_scratch(phase.first_scratch_block);
}

int PatAreas::member(int offset, int position) const {
  return group_.member_at(group_.me() - offset -
                          trees_.lanes()[static_cast<std::size_t>(position)]);
}

std::vector<Run> PatAreas::runs(int area, int offset, const std::vector<int>& positions) const {
  std::vector<std::int64_t> first;
  std::vector<int> chunks;
  const int lanes = static_cast<int>(trees_.lanes().size());
  for (int position : positions) {
    const int block = member(offset, position);
    const std::int64_t scratch_block = first_ + std::int64_t{area * lanes + position} * unit_;
    first.push_back(scratch_block * chunks_per_block_ +
                    blocks_.first_chunk(block) % chunks_per_block_);
    chunks.push_back(blocks_.chunks(block));
  }
  BlockMap map = BlockMap::table(plan::Buffer::scratch, std::move(first), std::move(chunks));
  return map.limit_message(blocks_.message_limit()).runs(0, static_cast<int>(positions.size()));
}

}  // namespace unisono::algorithm
