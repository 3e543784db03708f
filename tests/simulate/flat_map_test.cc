#include "simulate/flat_map.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

namespace unisono::simulate {
namespace {

// Few homes, at the end of the table, so that runs are long and go round.
struct Oversubscribed {
  std::size_t operator()(int key) const { return SIZE_MAX - static_cast<std::size_t>(key % 3); }
};

TEST(FlatMap, HoldsWhatATableHolds) {
  FlatMap<int, int, Oversubscribed> map;
  std::unordered_map<int, int> expected;
  std::mt19937 random(1);
  EXPECT_EQ(map.find(1), nullptr);
  map.erase(1);
  for (int step = 0; step < 20'000; ++step) {
    const int key = static_cast<int>(random() % 200);
    if (random() % 2 == 0) {
      map[key] += step;
      expected[key] += step;
    } else {
      map.erase(key);
      expected.erase(key);
    }
    const int asked = static_cast<int>(random() % 200);
    const auto found = expected.find(asked);
    const int* own = map.find(asked);
    ASSERT_EQ(own != nullptr, found != expected.end());
    if (own != nullptr) {
      ASSERT_EQ(*own, found->second);
    }
    ASSERT_EQ(map.size(), expected.size());
  }
  std::size_t seen = 0;
  map.for_each([&](int key, int value) {
    EXPECT_EQ(expected.at(key), value);
    ++seen;
  });
  EXPECT_EQ(seen, expected.size());
}

}  // namespace
}  // namespace unisono::simulate
