// Whole plans whose messages became puts, whoever reaches whom.
#include "plan/zero_copy.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "algorithm/algorithm.h"
#include "base/str.h"
#include "plan/exchange.h"
#include "plan/text.h"
#include "support/interpreter.h"
#include "support/sanitized.h"
#include "verify/verify.h"

namespace unisono::verify {
namespace {

using plan::Reach;

Reach seeded(int ranks, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Reach out(ranks, false);
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) out.set(from, to, random() % 2 == 0);
  return out;
}

// Nobody, all, all but each single rank; then patterns at random.
std::vector<Reach> patterns(int ranks, std::uint64_t seeds) {
  std::vector<Reach> out{Reach(ranks, false), Reach(ranks, true)};
  for (int rank = 0; rank < ranks; ++rank) {
    out.emplace_back(ranks, true);
    out.back().hide(rank);
  }
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) out.push_back(seeded(ranks, seed));
  return out;
}

std::vector<plan::Plan> built_in_plans(int ranks) {
  std::vector<plan::Plan> out;
  for (const algorithm::Entry& entry : algorithm::entries())
    for (const bool in_place : {false, true}) {
      algorithm::Request request{.collective = entry.collective,
                                 .placement = topo::Placement::single_node(ranks)};
      request.in_place = in_place;
      request.root = has_root(entry.collective) ? ranks - 1 : 0;
      auto plan = algorithm::make_plan(entry, request);
      if (plan.ok()) out.push_back(std::move(*plan));
    }
  return out;
}

std::int64_t puts_in(const plan::Plan& plan) {
  std::int64_t out = 0;
  for (const plan::RankProgram& program : plan.programs)
    for (const plan::ThreadBlock& block : program.thread_blocks)
      for (const plan::Node& node : block.body)
        out += std::get<plan::Step>(node).operation == plan::Operation::put;
  return out;
}

class ZeroCopyOfRanks : public testing::TestWithParam<int> {};

TEST_P(ZeroCopyOfRanks, EveryBuiltInPlanIsRightWhoeverReachesWhom) {
  const int ranks = GetParam();
  const std::vector<Reach> all = patterns(ranks, test::is_sanitized ? 2 : 100);
  std::int64_t early = 0;
  int exchanges = 0;
  for (const plan::Plan& plan : built_in_plans(ranks)) {
    const plan::ZeroCopy pass(plan);
    early += pass.early();
    const int needed = verify(plan).slots;
    const auto exchange = plan::exchange_of(plan);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const plan::Plan made = pass.under(all[i]);
      if (i < 2) {
        EXPECT_EQ(puts_in(made), i == 0 ? 0 : pass.early()) << plan.header.name;
      }
      const Report report = verify(made);
      ASSERT_TRUE(report.ok()) << plan.header.name << ", " << ranks << " ranks, pattern " << i
                               << "\n"
                               << report.failures.front().describe();
      EXPECT_EQ(report.slots, needed) << plan.header.name << ", pattern " << i;
      if (i > 10 && i % 10 != 0) continue;
      // Kernels are matched by what the one-sided plan exchanges, too.
      EXPECT_EQ(plan::exchange_of(made), exchange) << plan.header.name << ", pattern " << i;
      exchanges += exchange.has_value();
      const auto fault = test::find_fault(made, 1, i + 1, Options{}.slots);
      EXPECT_FALSE(fault.has_value()) << plan.header.name << ", pattern " << i << ": " << *fault;
    }
  }
  EXPECT_GT(early, 100);
  EXPECT_GT(exchanges, 100);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ZeroCopyOfRanks, testing::Values(2, 3, 4, 5, 8),
                         testing::PrintToStringParamName());

// Back to messages, they are right with the same slots: each token follows one put.
TEST(ZeroCopy, PutsBecomeTheMessagesThatTheyWere) {
  for (const int ranks : {2, 3, 5})
    for (const plan::Plan& plan : built_in_plans(ranks)) {
      const auto back = plan::with_messages(plan::ZeroCopy(plan).under(Reach(ranks, true)));
      ASSERT_TRUE(back.ok()) << back.error().message;
      EXPECT_EQ(puts_in(*back), 0);
      const Report report = verify(*back);
      EXPECT_TRUE(report.ok()) << plan.header.name << report.failures.front().describe();
      EXPECT_EQ(report.slots, verify(plan).slots) << plan.header.name;
      EXPECT_EQ(plan::exchange_of(*back), plan::exchange_of(plan)) << plan.header.name;
    }
}

// Rank 1 sends what is in its output, and rank 0 puts the sum there. `first` is what rank 0 does
// before it has that message.
plan::Plan sum_put_back(std::string_view first) {
  const auto plan = plan::parse(str(R"(plan put_back version 1
collective all_reduce ranks 2
protocol simple channels 1 in_place no
chunks 1 input_blocks 1 output_blocks 1
bytes 0..

rank 0
  block 0 channel 0 send 1 recv 1
)",
                                    first, R"(
    recv_reduce_copy input[0] -> output[0]
    put output[0] -> output[0]
    signal

rank 1
  block 0 channel 0 send 0 recv 0
    copy input[0] -> output[0]
    send output[0]
    wait
)"));
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return *plan;
}

TEST(ZeroCopy, APutThatRacesWithAReadIsRefusedWithBothSteps) {
  const Report right = verify(sum_put_back(""));
  EXPECT_TRUE(right.ok()) << right.failures.front().describe();
  const Report wrong = verify(sum_put_back("    put input[0] -> output[0]\n"));
  ASSERT_FALSE(wrong.ok());
  const Failure& failure = wrong.failures.front();
  EXPECT_EQ(failure.problem, Problem::race);
  EXPECT_NE(failure.expected.find("a signal and a wait that order it with rank"), std::string::npos)
      << failure.describe();
  ASSERT_EQ(failure.counterexample.size(), 2U);
  const std::string both = failure.counterexample[0] + failure.counterexample[1];
  EXPECT_NE(both.find("rank 0 thread block 0 step 0: put input[0] -> output[0]"), std::string::npos)
      << both;
  EXPECT_NE(both.find("rank 1 thread block 0 step"), std::string::npos) << both;
}

// A message into an output that is read before stays a message: its receiver is not ready.
TEST(ZeroCopy, AMessageToWhereAnOwnStepReadsBeforeStaysOne) {
  const auto plan = plan::with_messages(sum_put_back(""));
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(verify(*plan).ok());
  const plan::ZeroCopy pass(*plan);
  EXPECT_EQ(pass.messages(), 2);
  EXPECT_EQ(pass.early(), 0);
  EXPECT_EQ(puts_in(pass.under(Reach(2, true))), 0);
}

}  // namespace
}  // namespace unisono::verify
