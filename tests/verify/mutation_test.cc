// Proof that the verifier can fail: plans with one field of one step changed. The program
// `mutation` does the same with more of them, and prints what became of each kind.
#include <gtest/gtest.h>

#include <random>

#include "algorithm/algorithm.h"
#include "support/mutation.h"
#include "support/sanitized.h"

namespace unisono::verify {
namespace {

TEST(Mutation, WrongPlansAreCaught) {
  std::mt19937_64 random(20261120);
  test::Tally tally;
  constexpr int mutants = test::is_sanitized ? 500 : 2500;
  for (int made = 0; made < mutants;) {
    const test::Sample sample = test::sample_request(random, 9);
    const Result<plan::Plan> plan = algorithm::make_plan(*sample.entry, sample.request);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto mutant = test::mutate(*plan, random);
    if (!mutant) continue;
    ++made;
    tally.add(sample, *mutant, test::judge(*plan, *mutant, 20, random()));
  }
  EXPECT_EQ(tally.total(test::Outcome::hole), 0) << tally.holes.front();
  EXPECT_GE(tally.share_caught(), 0.99) << tally.table();
  // Mutants that plan::check lets through are there in numbers, and most of them are wrong.
  EXPECT_GT(tally.total(test::Outcome::caught), mutants * 28 / 100) << tally.table();
  EXPECT_LT(tally.total(test::Outcome::same) + tally.total(test::Outcome::equivalent),
            mutants * 24 / 100)
      << tally.table();
}

TEST(Mutation, TheInterpreterFindsFaultWithCaughtPlans) {
  // The second opinion, without which survivors could not be judged, is itself able to accuse.
  std::mt19937_64 random(99);
  int caught = 0;
  int confirmed = 0;
  while (caught < (test::is_sanitized ? 40 : 150)) {
    const test::Sample sample = test::sample_request(random, 7);
    const Result<plan::Plan> plan = algorithm::make_plan(*sample.entry, sample.request);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto mutant = test::mutate(*plan, random);
    if (!mutant || test::judge(*plan, *mutant, 1, 1).outcome != test::Outcome::caught) continue;
    ++caught;
    if (test::find_fault_of(*mutant, 40, random())) ++confirmed;
  }
  // The rest are races that chance, or the messages between, kept from showing.
  EXPECT_GE(confirmed, caught * 95 / 100);
}

}  // namespace
}  // namespace unisono::verify
