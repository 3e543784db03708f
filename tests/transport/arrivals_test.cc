// Pieces that overtake each other are counted once each, in bounded memory.

#include "transport/lanes/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace unisono::test {
namespace {

using transport::Arrivals;
using Outcome = Arrivals::Outcome;

TEST(Arrivals, OfOneLaneTakeNoMemory) {
  Arrivals arrivals;
  for (std::uint64_t number = 0; number < 10'000; ++number)
    ASSERT_EQ(arrivals.note(number), Outcome::counted);
  EXPECT_EQ(arrivals.in_order(), 10'000U);
  EXPECT_EQ(arrivals.memory_bytes(), 0U);
}

TEST(Arrivals, AreInOrderUpToTheFirstThatIsMissing) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Arrivals arrivals;
  std::uint64_t first = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint64_t> numbers(1 + random() % Arrivals::window);
    std::iota(numbers.begin(), numbers.end(), first);
    const std::uint64_t end = first + numbers.size();
    std::shuffle(numbers.begin(), numbers.end(), random);
    std::vector<bool> has_come(numbers.size());
    for (const std::uint64_t number : numbers) {
      ASSERT_EQ(arrivals.note(number), Outcome::counted);
      ASSERT_EQ(arrivals.note(number), Outcome::repeated);
      has_come[static_cast<std::size_t>(number - first)] = true;
      const auto missing = std::find(has_come.begin(), has_come.end(), false);
      ASSERT_EQ(arrivals.in_order(),
                first + static_cast<std::uint64_t>(missing - has_come.begin()));
    }
    first = end;
  }
  EXPECT_EQ(arrivals.note(0), Outcome::repeated);
}

TEST(Arrivals, TooFarAheadAreNotCountedUntilOthersHaveCome) {
  Arrivals arrivals;
  EXPECT_EQ(arrivals.note(Arrivals::window - 1), Outcome::counted);
  for (const std::uint64_t number : {Arrivals::window, ~std::uint64_t{0}})
    EXPECT_EQ(arrivals.note(number), Outcome::ahead);
  EXPECT_EQ(arrivals.note(0), Outcome::counted);
  EXPECT_EQ(arrivals.note(Arrivals::window), Outcome::counted);
  EXPECT_EQ(arrivals.in_order(), 1U);
}

}  // namespace
}  // namespace unisono::test
