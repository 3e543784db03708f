#include "comm/control/tree.h"

#include <algorithm>
#include <cstdint>

namespace unisono::comm {

std::vector<RankRange> divide(const RankRange& subtree, int fan_out) {
  const std::int64_t others = subtree.size() - 1;
  const std::int64_t parts = std::min<std::int64_t>(others, fan_out);
  const auto begin = [&](std::int64_t part) {
    return subtree.first + 1 + static_cast<int>(others * part / parts);
  };
  std::vector<RankRange> out;
  for (std::int64_t part = 0; part < parts; ++part) out.push_back({begin(part), begin(part + 1)});
  return out;
}

TreePlace::TreePlace(int rank, int ranks, int fan_out)
    : ranks_(ranks), fan_out_(fan_out), subtree_{0, ranks} {
  for (;;) {
    children_ = divide(subtree_, fan_out);
    if (subtree_.first == rank) return;
    ancestors_.push_back(subtree_.first);
    subtree_ = *std::ranges::find_if(
        children_, [rank](const RankRange& child) { return child.contains(rank); });
  }
}

bool TreePlace::is_child(int rank) const {
  return std::ranges::find(children_, rank, &RankRange::first) != children_.end();
}

int TreePlace::towards(int rank) const {
  for (const RankRange& child : children_)
    if (child.contains(rank)) return child.first;
  return parent();
}

int TreePlace::height() const {
  int height = 0;
  // The largest child comes last.
  for (RankRange range = subtree_; range.size() > 1; ++height)
    range = divide(range, fan_out_).back();
  return height;
}

}  // namespace unisono::comm
