// Which values an index takes in its loops, without going through them where that can be helped.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/plan.h"

namespace unisono::plan {

// Every term of an index, and every sum on the way to its value, stays below this in magnitude,
// so that Index::at never overflows.
inline constexpr std::int64_t max_index_magnitude = std::int64_t{1} << 62;

struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool holds(std::int64_t value) const { return first <= value && value <= last; }
};

// The loops around a step: how often each runs, and how many steps one iteration has.
struct LoopNest {
  int depth = 0;
  LoopValues counts{1, 1};
  LoopValues steps_per_iteration{0, 0};
};

struct Outlier {
  LoopValues loops{};
  std::int64_t value = 0;
};

// False if the index may come beyond max_index_magnitude on its way to a value.
bool fits_64_bits(const Index& index, const LoopNest& nest);

// Loop values for which the index leaves `allowed`; none if it never does. The index must fit 64
// bits. Where bounds alone do not decide, it goes through the iterations up to the first outlier.
std::optional<Outlier> find_outlier(const Index& index, const LoopNest& nest, Range allowed);

}  // namespace unisono::plan
