// Copies between processes: measured, or nothing said.

#include "sys/single_copy.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace unisono::sys {
namespace {

TEST(SingleCopy, CostsOfBothWaysAreMeasured) {
  const CopyCosts costs = measure_copies();
  if (costs.kernel_ns_per_byte == 0) GTEST_SKIP() << "the kernel refuses to copy between processes";
  // From a tenth of a terabyte a second to what the slowest machine copies.
  for (const double ns_per_byte : {costs.slots_ns_per_byte, costs.kernel_ns_per_byte}) {
    EXPECT_GT(ns_per_byte, 0.01 / 10);
    EXPECT_LT(ns_per_byte, 10'000);
  }
  EXPECT_DOUBLE_EQ(costs.gain(), costs.slots_ns_per_byte / costs.kernel_ns_per_byte);
}

TEST(SingleCopy, AThreadThatIsBoundStaysBound) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  measure_copies();
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&one, &after));
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(SingleCopy, WhatCannotBeMeasuredHasNoGain) { EXPECT_EQ(CopyCosts{}.gain(), 0); }

}  // namespace
}  // namespace unisono::sys
