// Tests that hold for every entry of the registry take it as their parameter.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "algorithm/algorithm.h"
#include "support/sanitized.h"

namespace unisono::algorithm {

inline std::vector<const Entry*> every_entry() {
  std::vector<const Entry*> result;
  for (const Entry& entry : entries()) result.push_back(&entry);
  return result;
}

inline std::string name_of_entry(const testing::TestParamInfo<const Entry*>& info) {
  return info.param->plan_name();
}

using test::is_sanitized;

struct Variant {
  int channels = 1;
  bool in_place = false;
};
// All of one or three channels, in place or not; of larger communicators two that differ in both.
inline std::vector<Variant> variants_for(int ranks) {
  if (ranks <= (is_sanitized ? 5 : 9)) return {{1, false}, {1, true}, {3, false}, {3, true}};
  return {{1, ranks % 2 == 0}, {3, ranks % 2 != 0}};
}

}  // namespace unisono::algorithm
