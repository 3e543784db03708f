// Plans spoilt by hand, one or more for each kind of problem: what is reported, and where.
#include <gtest/gtest.h>

#include <set>

#include "plan/builder.h"
#include "verify/plans.h"
#include "verify/verify.h"

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
using test::header;
using test::step_of;

// The only failure of a plan that must have one.
Failure failure_of(const Plan& plan, const Options& options = {}) {
  const Report report = verify(plan, options);
  EXPECT_FALSE(report.ok()) << "the wrong plan passed";
  return report.ok() ? Failure{} : report.failures.front();
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "'" << (text) << "' lacks '" << (part) << "'"

#define EXPECT_PLACE(failure, its_problem, its_rank, its_block, its_step, its_buffer, its_chunk) \
  EXPECT_EQ(name((failure).problem), name(its_problem)) << (failure).describe();                 \
  EXPECT_EQ((failure).rank, its_rank) << (failure).describe();                                   \
  EXPECT_EQ((failure).thread_block, its_block) << (failure).describe();                          \
  EXPECT_EQ((failure).step, its_step) << (failure).describe();                                   \
  EXPECT_EQ((failure).buffer, its_buffer) << (failure).describe();                               \
  EXPECT_EQ((failure).chunk, its_chunk) << (failure).describe()

// Every rank sends its input to the next, which copies it to the output: no collective at all, but
// the shortest plan in which two ranks exchange something.
Plan exchange(Collective collective, int chunks = 1, bool in_place = false) {
  Plan plan{header(collective, 2, chunks, in_place), {}};
  for (int rank = 0; rank < 2; ++rank) {
    ProgramBuilder program(rank);
    BlockBuilder block = program.block(0, 1 - rank, 1 - rank);
    block.send(input(0));
    block.recv_reduce_copy(input(0), output(0));
    plan.programs.push_back(program.take());
  }
  return plan;
}

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

TEST(WrongPlans, ACustomCollectiveHasNothingToProve) {
  Plan plan = exchange(Collective::all_reduce);
  plan.header.collective = Collective::custom;
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::malformed);
  EXPECT_CONTAINS(failure.got, "custom");
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

TEST(WrongPlans, ReadingWhatNothingHasWritten) {
  Plan plan = exchange(Collective::all_reduce);
  plan.programs[1].scratch_blocks = 1;
  step_of(plan, 1, 0, 0).source = scratch(0);
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::unwritten_read, 1, 0, 0, Buffer::scratch, 0);
  EXPECT_CONTAINS(failure.got, "nothing");
  EXPECT_CONTAINS(failure.story.back(), "rank 1 thread block 0 step 0: send scratch[0]");
}

TEST(WrongPlans, InPlaceTheInputOfARankWithoutDataIsUnwritten) {
  Plan plan = test::chain_broadcast(3, 1, 0);
  plan.header.in_place = true;
  plan::set_blocks(plan.header);
  ASSERT_TRUE(verify(plan).ok());
  step_of(plan, 1, 0, 0).operation = Operation::copy_send;
  EXPECT_PLACE(failure_of(plan), Problem::unwritten_read, 1, 0, 0, Buffer::input, 0);
}

TEST(WrongPlans, ReadingTheInputAfterOverwritingIt) {
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
  EXPECT_CONTAINS(failure.story.front(), "rank 0 thread block 0 step 0: send input[0]");
}

TEST(WrongPlans, ReadingARawContributionThroughTheOutput) {
  Plan plan = test::ring_all_reduce(4, true, false);
  step_of(plan, 2, 0, 0).source.buffer = Buffer::output;
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::stale_read, 2, 0, 0, Buffer::output, 2);
  EXPECT_CONTAINS(failure.got, "raw contribution");
}

TEST(WrongPlans, AddingTwoDifferentChunks) {
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

TEST(WrongPlans, AddingWhereDataIsOnlyMoved) {
  EXPECT_EQ(failure_of(exchange(Collective::all_gather)).problem, Problem::stale_read);
}

TEST(WrongPlans, ASourceThatOverlapsTheDestination) {
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

TEST(WrongPlans, AContributionThatIsAddedTwice) {
  Plan plan = exchange(Collective::all_reduce);
  // Rank 1 adds its own input once more.
  BlockBuilder(plan.programs[1], 0).reduce(input(0), output(0));
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::double_contribution, 1, 0, 2, Buffer::input, 0);
  EXPECT_CONTAINS(failure.got, "rank 1 twice");
  EXPECT_CONTAINS(failure.story.front(), "step 1: recv_reduce_copy");
  EXPECT_CONTAINS(failure.story.back(), "step 2: reduce input[0] -> output[0]");
}

TEST(WrongPlans, AMessageOfAnotherNumberOfChunks) {
  Plan plan = test::direct_all_to_all(2);
  step_of(plan, 0, 1, 0).count = 1;
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::size_mismatch, 1, 1, 1, Buffer::output, 0);
  EXPECT_CONTAINS(failure.expected, "2 chunks");
  EXPECT_CONTAINS(failure.got, "1 chunk from rank 0 thread block 1 step 0");
}

TEST(WrongPlans, AMessageWhoseChunkIsTheRaggedOne) {
  Plan plan = test::chain_broadcast(3, 2, 0);
  std::swap(step_of(plan, 1, 0, 0), step_of(plan, 1, 0, 1));
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::size_mismatch, 1, 0, 0, Buffer::output, 1);
  EXPECT_CONTAINS(failure.expected, "chunk 1 of a block");
  EXPECT_CONTAINS(failure.got, "chunk 0 of a block");
}

TEST(WrongPlans, WithUnequalBlocksAMessageHasItsReceiversSize) {
  Plan plan = test::direct_all_to_all(3, Collective::all_to_all_v);
  step_of(plan, 2, 1, 0).source = input(2);  // for rank 1, sent to rank 0
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::size_mismatch, 0, 2, 1, Buffer::output, 4);
  EXPECT_CONTAINS(failure.expected, "from rank 2 to rank 0");
  EXPECT_CONTAINS(failure.got, "from rank 2 to rank 1");
}

TEST(WrongPlans, WithUnequalBlocksScratchHasNoSize) {
  Plan plan = test::direct_all_to_all(2, Collective::all_to_all_v);
  plan.programs[0].scratch_blocks = 1;
  step_of(plan, 0, 1, 1).destination = scratch(0);
  EXPECT_PLACE(failure_of(plan), Problem::size_mismatch, 0, 1, 1, Buffer::scratch, 0);
}

TEST(WrongPlans, TwoThreadBlocksWithoutOrder) {
  Plan plan = test::all_pairs_all_reduce(3);
  for (plan::Node& node : plan.programs[1].thread_blocks[0].body)
    std::get<plan::Step>(node).after.clear();
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::race);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.buffer, Buffer::scratch);
  EXPECT_CONTAINS(failure.expected, "after");
  EXPECT_EQ(failure.story.size(), 2U);
}

TEST(WrongPlans, AMessageDoesNotOrderARanksThreadBlocks) {
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

TEST(WrongPlans, AReceiveIntoWhatIsStillBeingSent) {
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

TEST(WrongPlans, ABarrierOrdersARanksThreadBlocks) {
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

TEST(WrongPlans, WritingTheInput) {
  Plan plan = exchange(Collective::all_reduce);
  step_of(plan, 0, 0, 1).destination = input(0);
  EXPECT_PLACE(failure_of(plan), Problem::input_written, 0, 0, 1, Buffer::input, 0);
}

TEST(WrongPlans, ACycleOfReceivesIsToldLinkByLink) {
  Plan plan = exchange(Collective::all_reduce);
  for (int rank = 0; rank < 2; ++rank)
    std::swap(step_of(plan, rank, 0, 0), step_of(plan, rank, 0, 1));
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::deadlock);
  EXPECT_CONTAINS(failure.got, "2 thread blocks");
  ASSERT_EQ(failure.story.size(), 2U);
  EXPECT_CONTAINS(failure.story[0], "rank 0 thread block 0 step 0");
  EXPECT_CONTAINS(failure.story[0], "a message from rank 1 by rank 1 thread block 0");
  EXPECT_CONTAINS(failure.story[1], "a message from rank 0 by rank 0 thread block 0");
}

TEST(WrongPlans, ACycleOfFullSlotsNeedsMoreSlots) {
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
  const Failure failure = failure_of(plan, {.slots = 2});
  EXPECT_EQ(failure.problem, Problem::deadlock);
  EXPECT_EQ(failure.step, 2);
  EXPECT_CONTAINS(failure.story[0], "a free slot of 2 towards rank");
}

TEST(WrongPlans, AMessageThatNeverComes) {
  Plan plan = exchange(Collective::all_reduce);
  plan.programs[0].thread_blocks[0].body.erase(plan.programs[0].thread_blocks[0].body.begin());
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::deadlock);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_CONTAINS(failure.got, "but rank 0 thread block 0 has ended");
}

TEST(WrongPlans, AMessageOnAChannelThatNobodyServes) {
  Plan plan = exchange(Collective::all_reduce);
  plan.header.channels = 2;
  plan.programs[0].thread_blocks[0].channel = 1;
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::deadlock);
  EXPECT_CONTAINS(failure.got, "no thread block of it sends to rank");
}

TEST(WrongPlans, ThreadBlocksThatWaitForEachOther) {
  Plan plan = exchange(Collective::all_reduce);
  ProgramBuilder program(0);
  BlockBuilder sender = program.block(0, 1, -1);
  BlockBuilder receiver = program.block(0, -1, 1);
  sender.after(receiver.index(), 1).send(input(0));
  receiver.after(sender.index(), 1).recv_reduce_copy(input(0), output(0));
  plan.programs[0] = program.take();
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::deadlock);
  ASSERT_EQ(failure.story.size(), 2U);
  EXPECT_CONTAINS(failure.story[0], "step 0 to be completed by rank 0 thread block 1");
}

TEST(WrongPlans, ABarrierThatOneThreadBlockDoesNotReach) {
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

TEST(WrongPlans, OnlyWithZeroCopyOverwritingWhatIsSentBlocks) {
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
  EXPECT_CONTAINS(failure.story[0], "step 0 of thread block 0");
  EXPECT_CONTAINS(failure.story.back(), "Only with zero copy");
}

TEST(WrongPlans, AMessageThatNobodyTakes) {
  Plan plan = test::chain_broadcast(3, 2, 0);
  plan.programs[2].thread_blocks[0].body.pop_back();
  const Failure failure = failure_of(plan);
  EXPECT_PLACE(failure, Problem::message_left, 1, 0, 1, Buffer::output, 1);
  EXPECT_CONTAINS(failure.got, "1 message from rank 1");
}

// The last rank's contribution goes down to rank 0, and every rank adds its own.
Plan reduce_chain(int ranks) {
  Plan plan{header(Collective::reduce, ranks), {}};
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramBuilder program(rank);
    program.need_scratch(1);
    BlockBuilder block = program.block(0, rank - 1, rank < ranks - 1 ? rank + 1 : -1);
    if (rank == ranks - 1)
      block.send(input(0));
    else if (rank > 0)
      block.recv_reduce_send(input(0));
    else
      block.recv_reduce_copy(input(0), output(0));
    plan.programs.push_back(program.take());
  }
  return plan;
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
  ASSERT_EQ(failure.story.size(), 3U);
  EXPECT_CONTAINS(failure.story[0], "rank 2 thread block 0 step 0: send input[0]");
  EXPECT_CONTAINS(failure.story[1], "rank 1 thread block 0 step 0: recv_copy_send");
  EXPECT_CONTAINS(failure.story[2], "rank 0 thread block 0 step 0: recv_reduce_copy");
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
  EXPECT_CONTAINS(failure.story.front(), "rank 1 thread block 1 step 0: send input[4..5]");
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
}

TEST(WrongPlans, TheOrderOfTwoOperandsDoesNotMatter) {
  Plan plan = test::all_pairs_all_reduce(2);
  auto& body = plan.programs[1].thread_blocks[0].body;
  const auto last = static_cast<int>(body.size()) - 1;
  std::swap(step_of(plan, 1, 0, last).source, step_of(plan, 1, 0, last - 1).source);
  EXPECT_TRUE(verify(plan).ok());
}

TEST(WrongPlans, ReadingWhatWasPutBeforeWaitingForIt) {
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

TEST(WrongPlans, APutWithoutASignalIsLeft) {
  Plan plan = test::put_broadcast();
  auto& root = plan.programs[0].thread_blocks[0].body;
  std::swap(root[1], root[2]);
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::message_left);
  EXPECT_CONTAINS(failure.got, "put without");
}

TEST(WrongPlans, ATokenIsNoMessage) {
  Plan plan = test::chain_broadcast(2, 1, 0);
  step_of(plan, 0, 0, 0) = {.operation = Operation::signal, .after = {}, .peers = {}};
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::size_mismatch);
  EXPECT_EQ(failure.got, "a token");
}

TEST(WrongPlans, StoriesStayShort) {
  Plan plan = reduce_chain(64);
  step_of(plan, 30, 0, 0) = {
      .operation = Operation::recv_copy_send, .destination = scratch(0), .after = {}, .peers = {}};
  const Failure failure = failure_of(plan);
  EXPECT_EQ(failure.problem, Problem::wrong_result);
  EXPECT_LE(failure.story.size(), 12U);
  EXPECT_CONTAINS(failure.story.front(), "rank 63 thread block 0 step 0: send input[0]");
  EXPECT_CONTAINS(failure.story.back(), "rank 0 thread block 0 step 0: recv_reduce_copy");
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
  failure.story = {"first", "second"};
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
