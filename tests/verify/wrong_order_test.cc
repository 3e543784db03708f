// Plans spoilt by hand: races, deadlocks, and messages that are left.
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

TEST(WrongOrder, TwoThreadBlocksWithoutOrder) {
  Plan plan = test::all_pairs_all_reduce(3);
  for (plan::Node& node : plan.programs[1].thread_blocks[0].body)
    std::get<plan::Step>(node).after.clear();
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::race);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.buffer, Buffer::scratch);
  EXPECT_CONTAINS(failure.expected, "after");
  EXPECT_EQ(failure.counterexample.size(), 2U);
}

TEST(WrongOrder, AMessageDoesNotOrderARanksThreadBlocks) {
  // Thread block 0 sends to rank 1, which answers thread block 1: the copy comes first, but only
  // because of rank 1.
  Plan plan{header(Collective::broadcast, 2), {}};
  ProgramBuilder root(0);
  root.need_scratch(1);
  root.block(0, 1, -1).copy_send(input(0), output(0));
  root.block(0, -1, 1).recv(output(0));
  plan.programs.push_back(root.take());
  ProgramBuilder other(1);
  BlockBuilder block = other.block(0, 0, 0);
  block.recv_copy_send(output(0));
  plan.programs.push_back(other.take());
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::race);
  EXPECT_EQ(failure.rank, 0);
  EXPECT_EQ(failure.chunk, 0);

  step_of(plan, 0, 1, 0).after.push_back({0, 1});
  EXPECT_TRUE(verify(plan, {.zero_copy = false}).ok());
}

TEST(WrongOrder, AReceiveIntoWhatIsStillBeingSent) {
  Plan plan{header(Collective::all_to_all, 2, 1, true), {}};
  for (int rank = 0; rank < 2; ++rank) {
    ProgramBuilder program(rank);
    program.block(0, 1 - rank, -1).send(input(1 - rank));
    program.block(0, -1, 1 - rank).recv(output(1 - rank));
    plan.programs.push_back(program.take());
  }
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::race);
  EXPECT_EQ(failure.chunk, 1 - failure.rank);
}

TEST(WrongOrder, ABarrierOrdersARanksThreadBlocks) {
  Plan plan{header(Collective::all_gather, 1), {}};
  ProgramBuilder program(0);
  program.need_scratch(1);
  BlockBuilder first = program.block(0, -1, -1);
  first.copy(input(0), scratch(0));
  BlockBuilder second = program.block(0, -1, -1);
  second.copy(scratch(0), output(0));
  plan.programs.push_back(program.take());
  EXPECT_EQ(failure_of(plan).problem, Problem::race);

  ProgramBuilder ordered(0);
  ordered.need_scratch(1);
  BlockBuilder writer = ordered.block(0, -1, -1);
  writer.copy(input(0), scratch(0));
  writer.step({.operation = Operation::barrier});
  BlockBuilder reader = ordered.block(0, -1, -1);
  reader.step({.operation = Operation::barrier});
  reader.copy(scratch(0), output(0));
  plan.programs[0] = ordered.take();
  EXPECT_TRUE(verify(plan).ok());
}

TEST(WrongOrder, ACycleOfReceivesIsToldLinkByLink) {
  Plan plan = exchange(Collective::all_reduce);
  for (int rank = 0; rank < 2; ++rank)
    std::swap(step_of(plan, rank, 0, 0), step_of(plan, rank, 0, 1));
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::deadlock);
  EXPECT_EQ(verify(plan).slots, 0);
  EXPECT_CONTAINS(failure.got, "2 thread blocks");
  ASSERT_EQ(failure.counterexample.size(), 2U);
  EXPECT_CONTAINS(failure.counterexample[0], "rank 0 thread block 0 step 0");
  EXPECT_CONTAINS(failure.counterexample[0], "a message from rank 1 by rank 1 thread block 0");
  EXPECT_CONTAINS(failure.counterexample[1], "a message from rank 0 by rank 0 thread block 0");
}

TEST(WrongOrder, ACycleOfFullSlotsNeedsMoreSlots) {
  // Three messages before the first is taken, on both sides.
  Plan plan{header(Collective::all_gather, 2, 3), {}};
  for (int rank = 0; rank < 2; ++rank) {
    ProgramBuilder program(rank);
    BlockBuilder block = program.block(0, 1 - rank, 1 - rank);
    for (int chunk = 0; chunk < 3; ++chunk) block.copy_send(input(chunk), output(3 * rank + chunk));
    for (int chunk = 0; chunk < 3; ++chunk) block.recv(output(3 * (1 - rank) + chunk));
    plan.programs.push_back(program.take());
  }
  EXPECT_TRUE(verify(plan, {.slots = 3}).ok());
  for (const int slots : {3, 4, 100}) EXPECT_EQ(verify(plan, {.slots = slots}).slots, 3);
  // The fewest are looked for, from 2 on.
  const Report report = verify(plan);
  EXPECT_EQ(report.slots, 3);
  ASSERT_FALSE(report.ok());
  EXPECT_CONTAINS(report.failures[0].counterexample.back(), "with 3 slots in a connection");
  const Failure failure = failure_of(plan, {.slots = 2});
  EXPECT_EQ(failure.problem, Problem::deadlock);
  EXPECT_EQ(failure.step, 2);
  EXPECT_CONTAINS(failure.counterexample[0], "a free slot of 2 towards rank");
}

TEST(WrongOrder, AMessageThatNeverComes) {
  Plan plan = exchange(Collective::all_reduce);
  plan.programs[0].thread_blocks[0].body.erase(plan.programs[0].thread_blocks[0].body.begin());
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::deadlock);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_CONTAINS(failure.got, "but rank 0 thread block 0 has ended");
}

TEST(WrongOrder, AMessageOnAChannelThatNobodyServes) {
  Plan plan = exchange(Collective::all_reduce);
  plan.header.channels = 2;
  plan.programs[0].thread_blocks[0].channel = 1;
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::deadlock);
  EXPECT_CONTAINS(failure.got, "none of its thread blocks sends to rank");
}

TEST(WrongOrder, ThreadBlocksThatWaitForEachOther) {
  Plan plan = exchange(Collective::all_reduce);
  ProgramBuilder program(0);
  BlockBuilder sender = program.block(0, 1, -1);
  BlockBuilder receiver = program.block(0, -1, 1);
  sender.after(receiver.index(), 1).send(input(0));
  receiver.after(sender.index(), 1).recv_reduce_copy(input(0), output(0));
  plan.programs[0] = program.take();
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::deadlock);
  ASSERT_EQ(failure.counterexample.size(), 2U);
  EXPECT_CONTAINS(failure.counterexample[0], "step 0 to be completed by rank 0 thread block 1");
}

TEST(WrongOrder, ABarrierThatOneThreadBlockDoesNotReach) {
  Plan plan = exchange(Collective::all_reduce);
  ProgramBuilder program(0);
  BlockBuilder block = program.block(0, 1, 1);
  block.send(input(0));
  block.recv_reduce_copy(input(0), output(0));
  program.block(0, -1, -1).step({.operation = Operation::barrier});
  plan.programs[0] = program.take();
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::deadlock);
  EXPECT_EQ(failure.thread_block, 1);
  EXPECT_CONTAINS(failure.got, "barrier");
}

TEST(WrongOrder, OnlyWithZeroCopyOverwritingWhatIsSentBlocks) {
  // Both send a chunk and receive into the same: with copies that works.
  Plan plan{header(Collective::all_to_all, 2, 1, true), {}};
  for (int rank = 0; rank < 2; ++rank) {
    ProgramBuilder program(rank);
    BlockBuilder block = program.block(0, 1 - rank, 1 - rank);
    block.send(input(1 - rank));
    block.recv(output(1 - rank));
    plan.programs.push_back(program.take());
  }
  EXPECT_TRUE(verify(plan, {.zero_copy = false}).ok());
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::deadlock);
  EXPECT_CONTAINS(failure.counterexample[0], "step 0 of thread block 0");
  EXPECT_CONTAINS(failure.counterexample.back(), "Only with zero-copy");
}

TEST(WrongOrder, AMessageThatNobodyTakes) {
  Plan plan = test::chain_broadcast(3, 2, 0);
  plan.programs[2].thread_blocks[0].body.pop_back();
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::message_left, 1, 0, 1, Buffer::output, 1);
  EXPECT_CONTAINS(failure.got, "1 message from rank 1");
}

TEST(WrongOrder, ReadingWhatWasPutBeforeWaitingForIt) {
  Plan plan = test::put_broadcast();
  plan.programs[1].scratch_blocks = 1;
  auto& body = plan.programs[1].thread_blocks[0].body;
  body.insert(body.begin(), plan::Step{.operation = Operation::copy,
                                       .source = output(0),
                                       .destination = scratch(0),
                                       .after = {},
                                       .peers = {}});
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::race);
  EXPECT_EQ(failure.chunk, 0);
  EXPECT_CONTAINS(failure.expected, "signal");
}

TEST(WrongOrder, APutWithoutASignalIsLeft) {
  Plan plan = test::put_broadcast();
  auto& root = plan.programs[0].thread_blocks[0].body;
  std::swap(root[1], root[2]);
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::message_left);
  EXPECT_CONTAINS(failure.got, "put without");
}

}  // namespace
}  // namespace unisono::verify
