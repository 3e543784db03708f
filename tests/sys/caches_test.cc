#include "sys/caches.h"

#include <gtest/gtest.h>

namespace unisono::sys {
namespace {

TEST(Caches, CountsTheProcessorsOfAMask) {
  EXPECT_EQ(processors_in_mask("3"), 2);
  EXPECT_EQ(processors_in_mask("00000000,0000ff01"), 9);
  EXPECT_EQ(processors_in_mask(""), 0);
}

TEST(Caches, GiveACoreWhatProcessorsHave) {
  EXPECT_GE(cache_bytes_of_a_core(), std::size_t{64} << 10);
  EXPECT_LE(cache_bytes_of_a_core(), std::size_t{4} << 30);
  EXPECT_LE(second_level_bytes(), std::size_t{1} << 30);
}

}  // namespace
}  // namespace unisono::sys
