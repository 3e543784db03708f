// What the verifier says of right plans, of plans at random, and beside a concrete interpreter.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "algorithm/algorithm.h"
#include "support/interpreter.h"
#include "support/mutation.h"
#include "support/random_plan.h"
#include "support/sanitized.h"
#include "verify/plans.h"
#include "verify/verify.h"

namespace unisono::verify {
namespace {

TEST(Proof, HandWrittenPlansAreRightForEveryNumberOfRanks) {
  for (int ranks = 2; ranks <= 17; ++ranks) {
    for (const plan::Plan& plan :
         {test::ring_all_reduce(ranks, false, false), test::ring_all_reduce(ranks, true, true),
          test::ring_all_gather(ranks, false), test::ring_all_gather(ranks, true),
          test::all_pairs_all_reduce(ranks), test::direct_all_to_all(ranks),
          test::direct_all_to_all(ranks, Collective::all_to_all_v),
          test::chain_broadcast(ranks, 4, ranks / 2), test::dissemination_barrier(ranks)}) {
      const Report report = verify(plan);
      EXPECT_TRUE(report.ok()) << ranks << " ranks: " << report.failures.front().describe();
    }
  }
}

TEST(Proof, CountsStepsAndMessages) {
  const Report report = verify(test::ring_all_reduce(5, false, true));
  EXPECT_EQ(report.steps, 5 * 9);
  EXPECT_EQ(report.messages, 5 * 8);
}

// Fused steps need a message and a slot at once: with one slot, a ring of them deadlocks.
TEST(Proof, HoldsForItsSlotsAndMore) {
  const plan::Plan plan = test::ring_all_reduce(4, false, false);
  EXPECT_FALSE(verify(plan, {.slots = 1}).ok());
  for (const int slots : {2, 3, 100}) EXPECT_TRUE(verify(plan, {.slots = slots}).ok());
}

TEST(Proof, OneRankNeedsToReadItsInput) {
  plan::Plan plan{test::header(Collective::all_reduce, 1, 1, true), {}};
  plan.programs.resize(1);
  const Report untouched = verify(plan);
  ASSERT_FALSE(untouched.ok()) << "nothing has applied a pre-multiplication";
  EXPECT_EQ(untouched.failures.front().problem, Problem::wrong_result);
  plan::ProgramBuilder program(0);
  program.block(0, -1, -1).copy(plan::input(0), plan::output(0));
  plan.programs[0] = program.take();
  EXPECT_TRUE(verify(plan).ok());
}

TEST(Proof, ReadReduceAddsThePeersInTheirOrder) {
  // Every rank reads the inputs of all; nobody writes them, so no signal is needed.
  const auto make = [](std::vector<int> order_of_last) {
    plan::Plan plan{test::header(Collective::all_reduce, 4), {}};
    for (int rank = 0; rank < 4; ++rank) {
      plan::ProgramBuilder program(rank);
      plan::BlockBuilder block = program.block(0, -1, -1);
      std::vector<int> peers = rank == 3 ? order_of_last : std::vector<int>{0, 1, 2, 3};
      std::erase(peers, rank);
      block.copy(plan::input(0), plan::output(0));
      block.step({.operation = plan::Operation::read_reduce,
                  .source = plan::input(0),
                  .destination = plan::output(0),
                  .after = {},
                  .peers = peers});
      plan.programs.push_back(program.take());
    }
    return plan;
  };
  // Each starts with its own: the sums are the same, their order is not.
  const Report report = verify(make({0, 1, 2}));
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.failures.front().problem, Problem::different_results);
  const auto fault = test::find_fault(make({0, 1, 2}), 5, 1, 8);
  ASSERT_TRUE(fault.has_value());
}

TEST(Proof, APlanThatPassesWorksOnNumbers) {
  std::mt19937_64 random(7);
  for (int i = 0; i < (test::is_sanitized ? 60 : 300); ++i) {
    const test::Sample sample = test::sample_request(random, 9);
    const Result<plan::Plan> plan = algorithm::make_plan(*sample.entry, sample.request);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const Report report = verify(*plan);
    ASSERT_TRUE(report.ok()) << sample.describe() << "\n" << report.failures.front().describe();
    const auto fault = test::find_fault(*plan, 3, random(), Options{}.slots);
    EXPECT_FALSE(fault.has_value()) << sample.describe() << "\n" << *fault;
  }
}

// Well-formed and meaningless: nearly always wrong, and never worse than that.
TEST(Proof, RandomPlansEndInAVerdict) {
  constexpr std::uint64_t plans = test::is_sanitized ? 500 : 2000;
  std::uint64_t wrong = 0;
  std::vector<int> problems(problem_count);
  for (std::uint64_t seed = 1; seed <= plans; ++seed) {
    plan::Plan plan = test::random_plan(seed);
    // Most of them are drawn without a meaning.
    if (plan.header.collective == Collective::custom) continue;
    const Report report = verify(plan, {.slots = 1 + static_cast<int>(seed % 3)});
    if (report.ok()) {
      const auto fault = test::find_fault(plan, 3, seed, 1 + static_cast<int>(seed % 3));
      EXPECT_FALSE(fault.has_value()) << "seed " << seed << ": " << *fault;
      continue;
    }
    ++wrong;
    for (const Failure& failure : report.failures) {
      ++problems[static_cast<std::size_t>(failure.problem)];
      EXPECT_FALSE(failure.expected.empty()) << "seed " << seed;
      EXPECT_FALSE(failure.got.empty()) << "seed " << seed;
      EXPECT_LE(failure.counterexample.size(), 13U) << "seed " << seed;
    }
  }
  EXPECT_GT(wrong, plans / 4);
  EXPECT_GT(problems[static_cast<std::size_t>(Problem::race)], 0);
  EXPECT_GT(problems[static_cast<std::size_t>(Problem::deadlock)], 0);
}

TEST(Proof, IsTheSameEveryTime) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 50; ++i) {
    const test::Sample sample = test::sample_request(random, 7);
    const Result<plan::Plan> plan = algorithm::make_plan(*sample.entry, sample.request);
    ASSERT_TRUE(plan.ok());
    const auto mutant = test::mutate(*plan, random);
    if (!mutant) continue;
    const Report first = verify(mutant->plan);
    const Report second = verify(mutant->plan);
    ASSERT_EQ(first.ok(), second.ok());
    if (!first.ok()) {
      EXPECT_EQ(first.failures.front().describe(), second.failures.front().describe());
    }
  }
}

}  // namespace
}  // namespace unisono::verify
