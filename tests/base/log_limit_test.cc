#include "base/log_limit.h"

#include <gtest/gtest.h>

namespace unisono {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;

TEST(LogLimit, AllowsOneLineForEachSubjectAndMinute) {
  LogLimit limit;
  std::uint64_t left_out = 7;
  EXPECT_TRUE(limit.allows("10.0.0.1", 0, left_out));
  EXPECT_EQ(left_out, 0U);
  for (int i = 1; i < 60; ++i) EXPECT_FALSE(limit.allows("10.0.0.1", i * second_ns, left_out));
  EXPECT_TRUE(limit.allows("10.0.0.2", second_ns, left_out));
  EXPECT_TRUE(limit.allows("10.0.0.1", 60 * second_ns, left_out));
  EXPECT_EQ(left_out, 59U);
  EXPECT_FALSE(limit.allows("10.0.0.1", 61 * second_ns, left_out));
  EXPECT_EQ(left_out, 0U);
}

TEST(LogLimit, IsBoundedForManySubjects) {
  LogLimit limit(3);
  std::uint64_t left_out = 0;
  int allowed = 0;
  for (int i = 0; i < 1000; ++i) allowed += limit.allows(std::to_string(i), i, left_out);
  EXPECT_EQ(allowed, 3);
  EXPECT_TRUE(limit.allows("later", 61 * second_ns, left_out));
}

}  // namespace
}  // namespace unisono
