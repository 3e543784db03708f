#include "base/call_options.h"

#include <gtest/gtest.h>

#include <array>
#include <climits>

namespace unisono {
namespace {

using std::chrono::seconds;

struct Change {
  const char* name;
  void (*make)(CallOptions& options);
};

constexpr std::array of_all_ranks{
    Change{"algorithm", [](CallOptions& options) { options.algorithm = "ring"; }},
    Change{"protocol", [](CallOptions& options) { options.protocol = Protocol::simple; }},
    Change{"channels", [](CallOptions& options) { options.channels = 1; }},
    Change{"policy", [](CallOptions& options) { options.policy = Policy::fastest; }},
    Change{"max_sms", [](CallOptions& options) { options.max_sms = 1; }},
    Change{"compute_overlap", [](CallOptions& options) { options.compute_overlap = true; }},
};
constexpr std::array of_one_rank{
    Change{"timeout", [](CallOptions& options) { options.timeout = seconds(1); }},
    Change{"stream", [](CallOptions& options) { options.stream = nullptr; }},
    Change{"tag", [](CallOptions& options) { options.tag = 1; }},
};

TEST(CallOptions, RanksAgreeOnWhatChoosesThePlanAndItsPath) {
  const CallOptions none;
  for (const Change& one : of_all_ranks) {
    CallOptions changed;
    one.make(changed);
    EXPECT_FALSE(changed.agrees_with(none)) << one.name;
    EXPECT_NE(changed.agreed_hash(), none.agreed_hash()) << one.name;
    for (const Change& other : of_all_ranks) {
      if (&one == &other) continue;
      CallOptions otherwise;
      other.make(otherwise);
      EXPECT_FALSE(changed.agrees_with(otherwise)) << one.name << ", " << other.name;
      EXPECT_NE(changed.agreed_hash(), otherwise.agreed_hash()) << one.name << ", " << other.name;
    }
  }
}

TEST(CallOptions, RanksNeedNotAgreeOnTimeoutStreamAndTag) {
  for (const Change& asked : of_all_ranks)
    for (const Change& own : of_one_rank) {
      CallOptions mine;
      asked.make(mine);
      CallOptions theirs = mine;
      own.make(theirs);
      EXPECT_TRUE(mine.agrees_with(theirs)) << asked.name << ", " << own.name;
      EXPECT_EQ(mine.agreed_hash(), theirs.agreed_hash()) << asked.name << ", " << own.name;
    }
}

TEST(CallOptions, TheLimitOnSmsIsLoweredAndNeverRaised) {
  CallOptions options;
  EXPECT_TRUE(options.allows(INT_MAX));
  EXPECT_EQ(options.at_most(7), 7);
  options.limit_sms(0);
  EXPECT_FALSE(options.limits_sms());
  options.limit_sms(8);
  EXPECT_TRUE(options.limits_sms());
  EXPECT_TRUE(options.allows(8));
  EXPECT_FALSE(options.allows(9));
  EXPECT_EQ(options.at_most(7), 7);
  EXPECT_EQ(options.at_most(9), 8);
  for (const int more : {9, 0}) {
    options.limit_sms(more);
    EXPECT_EQ(options.max_sms, 8) << more;
  }
  options.limit_sms(2);
  EXPECT_EQ(options.max_sms, 2);
}

TEST(CallOptions, WhatACallLeavesOpenIsTheCommunicators) {
  const CallOptions defaults{.algorithm = "ring",
                             .timeout = seconds(9),
                             .policy = Policy::zero_sm,
                             .max_sms = 4,
                             .tag = 3};
  CallOptions open{.tag = 5};
  fill_in(open, defaults);
  EXPECT_EQ(open.timeout, seconds(9));
  EXPECT_EQ(open.policy, Policy::zero_sm);
  EXPECT_EQ(open.max_sms, 4);
  EXPECT_FALSE(open.compute_overlap);
  // No communicator names a plan for all its calls, nor a tag.
  EXPECT_EQ(open.algorithm, "");
  EXPECT_EQ(open.tag, 5U);

  CallOptions named{
      .timeout = seconds(1), .policy = Policy::fastest, .max_sms = 30, .compute_overlap = true};
  fill_in(named, defaults);
  EXPECT_EQ(named.timeout, seconds(1));
  EXPECT_EQ(named.policy, Policy::fastest);
  EXPECT_EQ(named.max_sms, 30);
  EXPECT_TRUE(named.compute_overlap);
  CallOptions overlapping;
  fill_in(overlapping, {.compute_overlap = true});
  EXPECT_TRUE(overlapping.compute_overlap);
}

TEST(CallOptions, ALimitBelowNothingIsMisuse) {
  for (const int right : {0, 1, INT_MAX}) EXPECT_TRUE(check_options({.max_sms = right}).ok());
  EXPECT_EQ(check_options({.max_sms = -2}, " on rank 3").error().describe(),
            "misuse: max_sms is -2 on rank 3; it must be 1 or more, or 0 for the communicator's "
            "limit");
}

}  // namespace
}  // namespace unisono
