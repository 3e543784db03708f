// Plans spoilt by hand: malformed ones, wrong results, and how failures are told.
#include <gtest/gtest.h>

#include <set>

#include "plan/builder.h"
#include "verify/plans.h"
#include "verify/verify.h"
#include "verify/wrong_plans.h"

namespace unisono::verify {
namespace {

using plan::BlockBuilder;
using plan::Buffer;
using plan::input;
using plan::Operation;
using plan::output;
using plan::Plan;
using plan::ProgramBuilder;
using plan::scratch;
using test::exchange;
using test::failure_of;
using test::header;
using test::reduce_chain;
using test::step_of;

TEST(WrongPlans, TheirUnspoiltFormsAreRight) {
  for (const Plan& plan :
       {exchange(Collective::all_reduce), test::ring_all_reduce(4, false, false),
        test::ring_all_reduce(4, true, false), test::all_pairs_all_reduce(4),
        test::direct_all_to_all(3), test::direct_all_to_all(3, Collective::all_to_all_v),
        test::chain_broadcast(4, 3, 1), test::ring_all_gather(4, true),
        test::dissemination_barrier(5), test::put_broadcast()}) {
    const Report report = verify(plan);
    EXPECT_TRUE(report.ok()) << report.failures.front().describe();
    EXPECT_GT(report.steps, 0);
    EXPECT_GT(report.messages, 0);
  }
}

TEST(WrongPlans, AnIndexOutsideItsBufferIsMalformed) {
  Plan plan = exchange(Collective::all_reduce);
  step_of(plan, 1, 0, 0).source.index = plan::Index(7);
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::malformed);
  EXPECT_CONTAINS(failure.got, "rank 1");
  EXPECT_CONTAINS(failure.got, "7");
}

TEST(WrongPlans, ACustomCollectiveWithoutConditionsIsVerifiedButForItsResults) {
  Plan plan = exchange(Collective::all_reduce);
  EXPECT_TRUE(verify(plan).results_verified);
  plan.header.collective = Collective::custom;
  const Report report = verify(plan);
  EXPECT_TRUE(report.ok());
  EXPECT_FALSE(report.results_verified);
  // With conditions the results are verified, too: rank 0's own input is not its sum.
  Conditions wanted{.given = {true, true}, .required = {{0}, {0, 1}}};
  const Report checked = verify(plan, {.conditions = &wanted});
  EXPECT_TRUE(checked.results_verified);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.failures[0].problem, Problem::wrong_result);
  EXPECT_EQ(checked.failures[0].expected, "input[0] of rank 0");
  EXPECT_EQ(checked.failures[0].got, "input[0] of rank 0 + input[0] of rank 1");
  // All else is verified without them.
  plan.programs[0].thread_blocks[0].body.pop_back();
  EXPECT_EQ(failure_of(plan).problem, Problem::message_left);
}

TEST(WrongPlans, APointToPointPlanHasNothingToVerify) {
  Plan plan = exchange(Collective::all_reduce);
  plan.header.collective = Collective::point_to_point;
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::malformed);
  EXPECT_CONTAINS(failure.got, "point_to_point");
}

TEST(WrongPlans, NoSlotsAreRefused) {
  EXPECT_EQ(failure_of(exchange(Collective::all_reduce), {.slots = 0}).problem, Problem::malformed);
}

TEST(WrongPlans, TooMuchMemoryIsRefusedBeforeItIsTaken) {
  Plan plan = exchange(Collective::all_reduce);
  plan.header.chunks_per_block = 1 << 20;
  plan.programs[0].scratch_blocks = 1 << 20;
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::malformed);
  EXPECT_CONTAINS(failure.expected, "chunks of memory");
}

TEST(WrongPlans, TooManyStepsAreRefusedBeforeTheyRun) {
  Plan plan{header(Collective::all_reduce, 1), {}};
  ProgramBuilder program(0);
  for (int i = 0; i < 64; ++i) {
    BlockBuilder block = program.block(0, -1, -1);
    block.loop(1 << 12);
    block.loop(1 << 12);
    block.copy(input(0), output(0));
    block.end_loop();
    block.end_loop();
  }
  plan.programs.push_back(program.take());
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::malformed);
  EXPECT_CONTAINS(failure.expected, "steps that move");
}

TEST(WrongPlans, AResultThatLacksAContribution) {
  Plan plan = reduce_chain(3);
  ASSERT_TRUE(verify(plan).ok());
  plan.programs[1].scratch_blocks = 1;
  step_of(plan, 1, 0, 0) = {
      .operation = Operation::recv_copy_send, .destination = scratch(0), .after = {}, .peers = {}};
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::wrong_result, 0, 0, 0, Buffer::output, 0);
  EXPECT_EQ(failure.expected, "chunk 0 of rank 0-2");
  EXPECT_EQ(failure.got, "chunk 0 of rank 0, 2");
  ASSERT_EQ(failure.counterexample.size(), 3U);
  EXPECT_CONTAINS(failure.counterexample[0], "rank 2 thread block 0 step 0: send input[0]");
  EXPECT_CONTAINS(failure.counterexample[1], "rank 1 thread block 0 step 0: recv_copy_send");
  EXPECT_CONTAINS(failure.counterexample[2], "rank 0 thread block 0 step 0: recv_reduce_copy");
}

TEST(WrongPlans, AnOutputThatNothingHasWritten) {
  Plan plan = test::chain_broadcast(3, 2, 0);
  for (int rank = 0; rank < 3; ++rank)
    plan.programs[static_cast<std::size_t>(rank)].thread_blocks[0].body.pop_back();
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::wrong_result);
  EXPECT_EQ(failure.rank, 0);
  EXPECT_EQ(failure.chunk, 1);
  EXPECT_EQ(failure.expected, "chunk 1 of rank 0's input");
  EXPECT_CONTAINS(failure.got, "nothing");
}

TEST(WrongPlans, DataOfAnotherRank) {
  Plan plan = test::direct_all_to_all(3);
  std::swap(step_of(plan, 1, 1, 0).source, step_of(plan, 1, 2, 0).source);
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::wrong_result);
  EXPECT_EQ(failure.rank, 0);
  EXPECT_EQ(failure.chunk, 2);
  EXPECT_EQ(failure.expected, "chunk 0 of block 0 of rank 1's input");
  EXPECT_EQ(failure.got, "chunk 0 of block 2 of rank 1's input");
  EXPECT_CONTAINS(failure.counterexample.front(), "rank 1 thread block 1 step 0: send input[4..5]");
}

TEST(WrongPlans, AnEndBeforeEveryRankHasStarted) {
  Plan plan = test::dissemination_barrier(4);
  // Nobody waits for distance 2.
  for (plan::RankProgram& program : plan.programs) program.thread_blocks.resize(1);
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::wrong_result);
  EXPECT_EQ(failure.rank, 0);
  EXPECT_CONTAINS(failure.got, "rank 1, 2");
}

TEST(WrongPlans, ABarrierNeedsTheOrderOfItsRounds) {
  Plan plan = test::dissemination_barrier(4);
  step_of(plan, 2, 1, 0).after.clear();
  const Failure race = failure_of(plan);  // both rounds receive into one chunk
  EXPECT_EQ(race.problem, Problem::race);
  plan.programs[2].scratch_blocks = 3;
  step_of(plan, 2, 1, 1).destination = scratch(2);
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::wrong_result);
  EXPECT_CONTAINS(failure.got, "does not wait");
}

TEST(WrongPlans, SumsInAnotherOrderOnAnotherRank) {
  Plan plan = test::all_pairs_all_reduce(3);
  // Rank 2 adds contribution 2 before contribution 1.
  auto& body = plan.programs[2].thread_blocks[0].body;
  const auto last = static_cast<int>(body.size()) - 1;
  std::swap(step_of(plan, 2, 0, last).source, step_of(plan, 2, 0, last - 1).source);
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::different_results);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_CONTAINS(failure.expected, "((0+1)+2)");
  EXPECT_CONTAINS(failure.got, "((0+2)+1)");
  // A custom collective adds input chunks.
  plan.header.collective = Collective::custom;
  const std::vector<std::int32_t> all{0, 1, 2};
  const Conditions wanted{.given = {true, true, true}, .required = {all, all, all}};
  const Failure custom = failure_of(plan, {.conditions = &wanted});
  EXPECT_EQ(custom.problem, Problem::different_results);
  EXPECT_CONTAINS(custom.expected, "((input[0] of rank 0+input[0] of rank 1)+input[0] of rank 2)");
  EXPECT_CONTAINS(custom.got, "((input[0] of rank 0+input[0] of rank 2)+input[0] of rank 1)");
}

TEST(WrongPlans, AnInputThatOnlyTheRootHas) {
  Plan plan{test::header(Collective::broadcast, 2, 1, true), {}};
  plan.header.root = 1;
  for (int rank = 0; rank < 2; ++rank) {
    plan::ProgramBuilder program(rank);
    program.need_scratch(1);
    program.block(0, -1, -1).copy(plan::input(0), plan::scratch(0));
    plan.programs.push_back(program.take());
  }
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::unwritten_read);
  EXPECT_EQ(failure.got, "a buffer without data: only rank 1, the root, has an input in broadcast");
}

TEST(WrongPlans, TheOrderOfTwoOperandsDoesNotMatter) {
  Plan plan = test::all_pairs_all_reduce(2);
  auto& body = plan.programs[1].thread_blocks[0].body;
  const auto last = static_cast<int>(body.size()) - 1;
  std::swap(step_of(plan, 1, 0, last).source, step_of(plan, 1, 0, last - 1).source);
  EXPECT_TRUE(verify(plan).ok());
}

TEST(WrongPlans, StoriesStayShort) {
  Plan plan = reduce_chain(64);
  step_of(plan, 30, 0, 0) = {
      .operation = Operation::recv_copy_send, .destination = scratch(0), .after = {}, .peers = {}};
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::wrong_result);
  EXPECT_LE(failure.counterexample.size(), 12U);
  EXPECT_CONTAINS(failure.counterexample.front(), "rank 63 thread block 0 step 0: send input[0]");
  EXPECT_CONTAINS(failure.counterexample.back(), "rank 0 thread block 0 step 0: recv_reduce_copy");
  EXPECT_CONTAINS(failure.describe(), "... 54 steps more ...");
}

TEST(WrongPlans, ADescriptionNamesTheProblemThePlaceAndTheWay) {
  Failure failure;
  failure.problem = Problem::stale_read;
  failure.rank = 3;
  failure.thread_block = 1;
  failure.step = 7;
  failure.buffer = Buffer::scratch;
  failure.chunk = 9;
  failure.expected = "this";
  failure.got = "that";
  failure.counterexample = {"first", "second"};
  EXPECT_EQ(failure.describe(),
            "stale_read, rank 3, thread block 1, step 7, scratch chunk 9\n"
            "  expected: this\n"
            "  got:      that\n"
            "  how:      first\n"
            "            second");
}

TEST(WrongPlans, EveryProblemHasItsOwnName) {
  std::set<std::string_view> names;
  for (int i = 0; i < problem_count; ++i) names.insert(name(static_cast<Problem>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(problem_count));
}

}  // namespace
}  // namespace unisono::verify
