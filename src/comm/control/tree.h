// The tree in which the ranks of a job find each other. It follows from the rank and the number of
// ranks alone, so that nobody has to be told its place. A rank's subtree is a range of ranks that
// begins with it; the others of the range are divided evenly among at most `fan_out` children. With
// ranges, what is gathered on the way up is put together in rank order, and a way to any rank is
// found by comparing numbers.
#pragma once

#include <vector>

namespace unisono::comm {

// 100,000 ranks are 4 levels below the root with 20 children each; a rank has links to them, to its
// parent, and to the 2 log2 p ranks that exchanges among all ranks need: 55, for the limit of 64.
inline constexpr int default_fan_out = 20;

struct RankRange {
  int first = 0;
  int end = 0;
  int size() const { return end - first; }
  bool contains(int rank) const { return rank >= first && rank < end; }
  bool operator==(const RankRange&) const = default;
};

class TreePlace {
 public:
  TreePlace(int rank, int ranks, int fan_out);

  int rank() const { return subtree_.first; }
  int ranks() const { return ranks_; }
  int fan_out() const { return fan_out_; }
  int parent() const { return ancestors_.empty() ? -1 : ancestors_.back(); }
  // The root first, the parent last.
  const std::vector<int>& ancestors() const { return ancestors_; }
  const RankRange& subtree() const { return subtree_; }
  // The children's subtrees, in rank order.
  const std::vector<RankRange>& children() const { return children_; }
  bool is_child(int rank) const;
  // The child, or else the parent, by which messages reach another rank.
  int towards(int rank) const;
  // Of the subtree: 0 for a rank without children.
  int height() const;
  int depth() const { return static_cast<int>(ancestors_.size()); }

 private:
  int ranks_;
  int fan_out_;
  RankRange subtree_;
  std::vector<int> ancestors_;
  std::vector<RankRange> children_;
};

// The subtrees of the children of a range's first rank.
std::vector<RankRange> divide(const RankRange& subtree, int fan_out);

}  // namespace unisono::comm
