// Plans spoilt by hand: steps that use data which is not there, or not what it should be.
#include <gtest/gtest.h>

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
using test::step_of;

TEST(WrongContents, ReadingWhatNothingHasWritten) {
  Plan plan = exchange(Collective::all_reduce);
  plan.programs[1].scratch_blocks = 1;
  step_of(plan, 1, 0, 0).source = scratch(0);
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::unwritten_read, 1, 0, 0, Buffer::scratch, 0);
  EXPECT_CONTAINS(failure.got, "nothing");
  EXPECT_CONTAINS(failure.counterexample.back(), "rank 1 thread block 0 step 0: send scratch[0]");
}

TEST(WrongContents, InPlaceTheInputOfARankWithoutDataIsUnwritten) {
  Plan plan = test::chain_broadcast(3, 1, 0);
  plan.header.in_place = true;
  plan::set_blocks(plan.header);
  ASSERT_TRUE(verify(plan).ok());
  step_of(plan, 1, 0, 0).operation = Operation::copy_send;
  EXPECT_PLACE(failure_of(plan), Problem::unwritten_read, 1, 0, 0, Buffer::input, 0);
}

TEST(WrongContents, ReadingTheInputAfterOverwritingIt) {
  // In place, the sum is written to where the raw contribution was, and that is sent as such.
  Plan plan{header(Collective::all_reduce, 2, 1, true), {}};
  for (int rank = 0; rank < 2; ++rank) {
    ProgramBuilder program(rank);
    BlockBuilder block = program.block(0, 1 - rank, 1 - rank);
    if (rank == 0) block.send(input(0));
    block.recv_reduce_copy(input(0), output(0));
    if (rank == 1) block.send(input(0));
    plan.programs.push_back(program.take());
  }
  const Failure failure = failure_of(plan, {.zero_copy = false});
  EXPECT_PLACE(failure, Problem::stale_read, 1, 0, 1, Buffer::input, 0);
  EXPECT_CONTAINS(failure.expected, "own contribution");
  EXPECT_CONTAINS(failure.got, "rank 0, 1");
  EXPECT_CONTAINS(failure.counterexample.front(), "rank 0 thread block 0 step 0: send input[0]");
}

TEST(WrongContents, ReadingARawContributionThroughTheOutput) {
  Plan plan = test::ring_all_reduce(4, true, false);
  step_of(plan, 2, 0, 0).source.buffer = Buffer::output;
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::stale_read, 2, 0, 0, Buffer::output, 2);
  EXPECT_CONTAINS(failure.got, "raw contribution");
}

TEST(WrongContents, AddingTwoDifferentChunks) {
  // The sizes agree, because both are chunk 0 of a block; the blocks do not.
  Plan plan{header(Collective::reduce_scatter, 2), {}};
  for (int rank = 0; rank < 2; ++rank) {
    ProgramBuilder program(rank);
    BlockBuilder block = program.block(0, 1 - rank, 1 - rank);
    block.send(input(1 - rank));
    block.recv_reduce_copy(input(rank), output(0));
    plan.programs.push_back(program.take());
  }
  ASSERT_TRUE(verify(plan).ok());
  step_of(plan, 0, 0, 0).source = input(0);
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::stale_read, 1, 0, 1, Buffer::input, 1);
  EXPECT_CONTAINS(failure.expected, "block 0");
  EXPECT_CONTAINS(failure.got, "block 1");
}

TEST(WrongContents, AddingWhereDataIsOnlyMoved) {
  EXPECT_EQ(failure_of(exchange(Collective::all_gather)).problem, Problem::stale_read);
}

TEST(WrongContents, ASourceThatOverlapsTheDestination) {
  Plan plan{header(Collective::all_gather, 1, 3), {}};
  plan.programs.resize(1);
  ProgramBuilder program(0);
  program.need_scratch(4);
  BlockBuilder block = program.block(0, -1, -1);
  block.copy(input(0), output(0), 3);
  block.copy(output(0), scratch(0), 3);
  block.copy(output(0), scratch(3), 3);
  block.copy(output(0), scratch(6), 3);
  block.copy(scratch(0), scratch(3), 6);
  plan.programs[0] = program.take();
  EXPECT_PLACE(failure_of(plan), Problem::stale_read, 0, 0, 4, Buffer::scratch, 0);
}

TEST(WrongContents, AContributionThatIsAddedTwice) {
  Plan plan = exchange(Collective::all_reduce);
  // Rank 1 adds its own input once more.
  BlockBuilder(plan.programs[1], 0).reduce(input(0), output(0));
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::double_contribution, 1, 0, 2, Buffer::input, 0);
  EXPECT_CONTAINS(failure.got, "rank 1 twice");
  EXPECT_CONTAINS(failure.counterexample.front(), "step 1: recv_reduce_copy");
  EXPECT_CONTAINS(failure.counterexample.back(), "step 2: reduce input[0] -> output[0]");
}

TEST(WrongContents, AMessageOfAnotherNumberOfChunks) {
  Plan plan = test::direct_all_to_all(2);
  step_of(plan, 0, 1, 0).count = 1;
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::size_mismatch, 1, 1, 1, Buffer::output, 0);
  EXPECT_CONTAINS(failure.expected, "2 chunks");
  EXPECT_CONTAINS(failure.got, "1 chunk from rank 0 thread block 1 step 0");
}

TEST(WrongContents, AMessageWhoseChunkIsTheRaggedOne) {
  Plan plan = test::chain_broadcast(3, 2, 0);
  std::swap(step_of(plan, 1, 0, 0), step_of(plan, 1, 0, 1));
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::size_mismatch, 1, 0, 0, Buffer::output, 1);
  EXPECT_CONTAINS(failure.expected, "chunk 1 of a block");
  EXPECT_CONTAINS(failure.got, "chunk 0 of a block");
}

TEST(WrongContents, WithUnequalBlocksAMessageHasItsReceiversSize) {
  Plan plan = test::direct_all_to_all(3, Collective::all_to_all_v);
  step_of(plan, 2, 1, 0).source = input(2);  // for rank 1, sent to rank 0
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::size_mismatch, 0, 2, 1, Buffer::output, 4);
  EXPECT_CONTAINS(failure.expected, "from rank 2 to rank 0");
  EXPECT_CONTAINS(failure.got, "from rank 2 to rank 1");
}

TEST(WrongContents, WithUnequalBlocksScratchHasNoSize) {
  Plan plan = test::direct_all_to_all(2, Collective::all_to_all_v);
  plan.programs[0].scratch_blocks = 1;
  step_of(plan, 0, 1, 1).destination = scratch(0);
  EXPECT_PLACE(failure_of(plan), Problem::size_mismatch, 0, 1, 1, Buffer::scratch, 0);
}

TEST(WrongContents, WritingTheInput) {
  Plan plan = exchange(Collective::all_reduce);
  step_of(plan, 0, 0, 1).destination = input(0);
  EXPECT_PLACE(failure_of(plan), Problem::input_written, 0, 0, 1, Buffer::input, 0);
}

TEST(WrongContents, ATokenIsNoMessage) {
  Plan plan = test::chain_broadcast(2, 1, 0);
  step_of(plan, 0, 0, 0) = {.operation = Operation::signal, .after = {}, .peers = {}};
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::size_mismatch);
  EXPECT_EQ(failure.got, "a token");
}

}  // namespace
}  // namespace unisono::verify
