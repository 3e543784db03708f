// What plans of few hops exchange, and when two plans exchange the same.
#include "plan/exchange.h"

#include <gtest/gtest.h>

#include "base/str.h"
#include "plan/text.h"

namespace unisono::plan {
namespace {

// An all-reduce of 3 ranks at rank 2, whose thread blocks 0 and 1 are those given: between it and
// rank 0, and rank 1.
std::string at_rank_2(std::string_view with_rank_0, std::string_view with_rank_1) {
  return str(R"(plan star version 1
collective all_reduce ranks 3
protocol simple channels 1 in_place no
chunks 1 input_blocks 1 output_blocks 1
bytes 0..

rank 0
  block 0 channel 0 send 2 recv 2
    send input[0]
    recv -> output[0]

rank 1
  block 0 channel 0 send 2 recv 2
    send input[0]
    recv -> output[0]

rank 2 scratch 1
  block 0 channel 0 send 0 recv 0
)",
             with_rank_0, "  block 1 channel 0 send 1 recv 1\n", with_rank_1);
}

// Adds rank 0's first, then rank 1's.
const std::string star = at_rank_2(R"(
    recv_reduce_copy input[0] -> output[0]
    send output[0] after 1:1
)",
                                   R"(
    recv_reduce_copy output[0] -> output[0] after 0:1
    send output[0]
)");

class ExchangeTest : public testing::Test {
 protected:
  std::optional<Exchange> exchange(const std::string& text) {
    auto plan = parse(text);
    EXPECT_TRUE(plan.ok()) << plan.error().describe();
    return plan.ok() ? exchange_of(*plan) : std::nullopt;
  }
};

TEST_F(ExchangeTest, SaysWhoGivesAndAddsAndForwardsWhat) {
  const auto exchange = this->exchange(star);
  ASSERT_TRUE(exchange);
  EXPECT_EQ(exchange->hops, 2);
  EXPECT_TRUE(exchange->reduces);
  EXPECT_FALSE(exchange->is_one_way());
  EXPECT_TRUE(exchange->has_whole_blocks());
  EXPECT_EQ(exchange->longest_message(), 1);
  const Chunks block{0, 1};
  const Chunks none;
  for (const int rank : {0, 1}) {
    EXPECT_EQ(exchange->part(rank).gives, (std::vector{none, none, block}));
    EXPECT_EQ(exchange->part(rank).takes, (std::vector{none, none, block}));
    EXPECT_TRUE(exchange->part(rank).adds.empty());
    EXPECT_TRUE(exchange->part(rank).forwards.empty());
  }
  EXPECT_EQ(exchange->part(2).gives, (std::vector{none, none, block}));
  EXPECT_EQ(exchange->part(2).takes, (std::vector{none, none, block}));
  EXPECT_EQ(exchange->part(2).adds, (std::vector{2, 0, 1}));
  EXPECT_EQ(exchange->part(2).forwards, (std::vector{0, 1}));
}

TEST_F(ExchangeTest, IsEqualHoweverStepsAreWritten) {
  const auto wanted = exchange(star);
  ASSERT_TRUE(wanted);
  // A message taken first and added then; through scratch; in another order of parts, which a sum
  // of two does not have.
  const std::string other = at_rank_2(R"(
    recv -> scratch[0]
    reduce input[0] -> scratch[0]
    copy scratch[0] -> output[0]
    send output[0] after 1:1
)",
                                      R"(
    recv_reduce_copy output[0] -> output[0] after 0:3
    send output[0]
)");
  EXPECT_EQ(exchange(other), wanted);
}

TEST_F(ExchangeTest, SumsInAnotherOrderAreAnother) {
  const std::string other = at_rank_2(R"(
    recv_reduce_copy output[0] -> output[0] after 1:1
    send output[0]
)",
                                      R"(
    recv_reduce_copy input[0] -> output[0]
    send output[0] after 0:1
)");
  ASSERT_TRUE(exchange(other));
  EXPECT_NE(exchange(other), exchange(star));
}

TEST_F(ExchangeTest, AMessageThatNobodyNeedsIsNone) {
  std::string other = star;
  for (const std::string_view step : {"    send input[0]\n    recv -> output[0]\n\nrank 1",
                                      "    recv_reduce_copy input[0] -> output[0]\n"}) {
    const auto at = other.find(step);
    ASSERT_NE(at, std::string::npos);
    other.insert(at,
                 step.starts_with("    send") ? "    send input[0]\n" : "    recv -> scratch[0]\n");
  }
  const std::string waits = "after 0:1";
  other.replace(other.find(waits), waits.size(), "after 0:2");
  EXPECT_FALSE(exchange(other));
}

// What a rank brings is multiplied where it is read through the input, and there alone.
TEST_F(ExchangeTest, AnOwnChunkReadThroughTheOutputIsNone) {
  const auto in_place = [](std::string text) {
    const std::string no = "in_place no";
    return text.replace(text.find(no), no.size(), "in_place yes");
  };
  const std::string through_output = at_rank_2(R"(
    recv_reduce_copy output[0] -> output[0]
    send output[0] after 1:1
)",
                                               R"(
    recv_reduce_copy output[0] -> output[0] after 0:1
    send output[0]
)");
  EXPECT_EQ(exchange(in_place(star)), exchange(star));
  EXPECT_FALSE(exchange(in_place(through_output)));
}

TEST_F(ExchangeTest, IsNotDecidedForOthers) {
  // Three messages before the first is taken.
  const std::string slots = at_rank_2(R"(
    send input[0]
    send input[0]
    send input[0]
    recv_reduce_copy input[0] -> output[0]
)",
                                      "");
  EXPECT_FALSE(exchange(slots));
  std::string channels = star;
  const std::string one = "channels 1";
  channels.replace(channels.find(one), one.size(), "channels 2");
  EXPECT_FALSE(exchange(channels));
  std::string barrier = star;
  barrier.insert(barrier.find("    recv_reduce_copy output"), "    barrier\n");
  EXPECT_FALSE(exchange(barrier));
}

}  // namespace
}  // namespace unisono::plan
