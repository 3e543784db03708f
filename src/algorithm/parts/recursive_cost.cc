#include "algorithm/parts/recursive_cost.h"

#include <algorithm>

#include "algorithm/parts/halving.h"
#include "algorithm/parts/powers.h"

namespace unisono::algorithm {
namespace {

std::vector<std::vector<Halves>> levels_of_all(const Group& group) {
  std::vector<std::vector<Halves>> levels;
  for (int member = 0; member < group.size(); ++member)
    levels.push_back(halvings(group.size(), member));
  return levels;
}

}  // namespace

void tally_recursive_all_gather(CostTally& tally, const Group& group, double block_bytes) {
  const auto levels = levels_of_all(group);
  // Members with fewer levels than others skip the deepest, which come first.
  for (int depth = ceil_log2(group.size()) - 1; depth >= 0; --depth) {
    for (int member = 0; member < group.size(); ++member) {
      const auto& mine = levels[static_cast<std::size_t>(member)];
      if (depth >= static_cast<int>(mine.size())) continue;
      const Halves& level = mine[static_cast<std::size_t>(depth)];
      const double bytes = block_bytes * level.my_size();
      const int rank = group.rank(member);
      if (!level.is_odd()) tally.send(rank, group.rank(level.partner()), bytes);
      if (level.is_host()) tally.send(rank, group.rank(level.odd()), bytes);
    }
    tally.end_phase();
  }
}

double tally_recursive_reduce_scatter(CostTally& tally, const Group& group, double block_bytes) {
  const auto levels = levels_of_all(group);
  for (int depth = 0; depth < ceil_log2(group.size()); ++depth) {
    for (int member = 0; member < group.size(); ++member) {
      const auto& mine = levels[static_cast<std::size_t>(member)];
      if (depth >= static_cast<int>(mine.size())) continue;
      const Halves& level = mine[static_cast<std::size_t>(depth)];
      const int to = level.is_odd() ? level.host() : level.partner();
      tally.send(group.rank(member), group.rank(to), block_bytes * level.other_size());
    }
    tally.end_phase();
  }
  int most = 0;
  for (const auto& mine : levels) {
    int reduced = 0;
    for (const Halves& level : mine)
      if (!level.is_odd()) reduced += level.my_size() * (level.is_host() ? 2 : 1);
    most = std::max(most, reduced);
  }
  return block_bytes * most;
}

}  // namespace unisono::algorithm
