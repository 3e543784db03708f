// The k-nomial tree (binomial for radix 2), over positions 0 .. size-1 of which 0 is the root.
//
// A position in base k: its parent is the position with the lowest digit that is not 0 cleared. So
// the subtree of a position is a range of positions, and the depth is ceil(log_k size) at most.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "algorithm/algorithm.h"
#include "algorithm/request.h"

namespace unisono::algorithm {

class KnomialTree {
 public:
  KnomialTree(int radix, int size) : radix_(radix), size_(size) {}

  int size() const { return size_; }

  // Positions in the subtree of v: v .. v + subtree(v) - 1.
  int subtree(int v) const {
    const std::int64_t weight = weight_of(v);
    return static_cast<int>(std::min<std::int64_t>(weight, size_ - v));
  }
  // v > 0.
  int parent(int v) const {
    const int weight = static_cast<int>(weight_of(v));
    return v - v / weight % radix_ * weight;
  }
  // Largest subtree first.
  std::vector<int> children(int v) const {
    std::vector<int> result;
    for (std::int64_t weight = weight_of(v) / radix_; weight >= 1; weight /= radix_)
      for (std::int64_t digit = 1; digit < radix_ && v + digit * weight < size_; ++digit)
        result.push_back(static_cast<int>(v + digit * weight));
    return result;
  }
  // Hops from the root.
  int depth(int v) const {
    int digits = 0;
    for (; v > 0; v /= radix_) digits += v % radix_ != 0 ? 1 : 0;
    return digits;
  }
  int max_depth() const {
    int most = 0;
    for (int v = 0; v < size_; ++v) most = std::max(most, depth(v));
    return most;
  }

 private:
  // The weight of the lowest digit that is not 0; for the root, the first that no position has.
  std::int64_t weight_of(int v) const {
    std::int64_t weight = 1;
    while (v == 0 ? weight < size_ : v % (weight * radix_) == 0) weight *= radix_;
    return weight;
  }

  int radix_;
  int size_;
};

// The registry's entry of a collective over such a tree.
template <int radix>
constexpr Entry knomial_entry(Collective collective, std::string_view summary,
                              std::string_view source, decltype(Entry::header) header,
                              decltype(Entry::program) program, decltype(Entry::cost) cost) {
  return {.name = radix == 2 ? "binomial" : "knomial4",
          .collective = collective,
          .summary = summary,
          .source = source,
          .constraint = "any number of ranks, any root",
          .supports = any_ranks,
          .header = header,
          .program = program,
          .cost = cost};
}

}  // namespace unisono::algorithm
