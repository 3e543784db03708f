// When steps run in logical time: worked out by hand, and bounded by what a message needs.
#include "verify/schedule.h"

#include <gtest/gtest.h>

#include <map>

#include "verify/plans.h"

namespace unisono::verify {
namespace {

Schedule schedule_of(const plan::Plan& plan, int slots = 8) {
  auto schedule = make_schedule(plan, slots);
  EXPECT_TRUE(schedule.ok()) << schedule.error().describe();
  return schedule.ok() ? std::move(*schedule) : Schedule{};
}

// Rank 0 sends three chunks, rank 1 receives them: one step a time unit, one more on the way.
plan::Plan three_messages() {
  plan::Plan plan;
  plan.header = {.name = "three",
                 .collective = Collective::broadcast,
                 .ranks = 2,
                 .channels = 2,
                 .chunks_per_block = 3};
  plan::set_blocks(plan.header);
  plan.programs.resize(2);
  plan.programs[1].rank = 1;
  plan::ThreadBlock sender{.channel = 0, .send_peer = 1};
  plan::ThreadBlock copier{.channel = 1};
  plan::ThreadBlock receiver{.channel = 0, .recv_peer = 0};
  for (std::int64_t chunk = 0; chunk < 3; ++chunk) {
    sender.body.push_back(
        plan::Step{.operation = plan::Operation::send, .source = {plan::Buffer::input, chunk}});
    receiver.body.push_back(plan::Step{.operation = plan::Operation::recv,
                                       .destination = {plan::Buffer::output, chunk}});
    copier.body.push_back(plan::Step{.operation = plan::Operation::copy,
                                     .source = {plan::Buffer::input, chunk},
                                     .destination = {plan::Buffer::output, chunk},
                                     .after = {{0, chunk + 1}}});
  }
  plan.programs[0].thread_blocks = {sender, copier};
  plan.programs[1].thread_blocks = {receiver};
  return plan;
}

TEST(Schedule, GivesStepsAndMessagesOneUnitEach) {
  const Schedule schedule = schedule_of(three_messages());
  ASSERT_EQ(schedule.steps.size(), 9u);
  // Sends at 0, 1, 2; copies after each send ended; receives when the messages have arrived.
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto index = static_cast<std::size_t>(i);
    EXPECT_EQ(schedule.steps[index].start, i);
    EXPECT_EQ(schedule.steps[3 + index].start, i + 1);
    EXPECT_EQ(schedule.steps[6 + index].start, i + 2);
    EXPECT_EQ(schedule.messages[index].sender, index);
    EXPECT_EQ(schedule.messages[index].receiver, 6 + index);
    EXPECT_EQ(schedule.messages[index].sent, i + 1);
    EXPECT_EQ(schedule.messages[index].arrived, i + 2);
  }
  EXPECT_EQ(schedule.duration, 5);
  EXPECT_EQ(schedule.steps[6].rank, 1);
  EXPECT_EQ(schedule.steps[6].text, "recv output[0], from rank 0");
}

TEST(Schedule, ASendWaitsForAFreeSlot) {
  // One slot: send at 0, received 2 to 3, the next send at 3, and so on.
  const Schedule schedule = schedule_of(three_messages(), 1);
  EXPECT_EQ(schedule.steps[0].start, 0);
  EXPECT_EQ(schedule.steps[1].start, 3);
  EXPECT_EQ(schedule.steps[2].start, 6);
  EXPECT_EQ(schedule.duration, 9);
}

TEST(Schedule, KeepsWhatAPlanAsksForInEveryRing) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    const plan::Plan plan = test::ring_all_reduce(ranks, false, true);
    const Schedule schedule = schedule_of(plan);
    std::map<std::pair<int, int>, std::int64_t> ended;
    for (const TimedStep& step : schedule.steps) {
      EXPECT_GE(step.start, (ended[{step.rank, step.thread_block}]));
      EXPECT_EQ(step.end, step.start + 1);
      ended[{step.rank, step.thread_block}] = step.end;
    }
    EXPECT_EQ(schedule.messages.size(), static_cast<std::size_t>(ranks * 2 * (ranks - 1)));
    for (const Arrow& arrow : schedule.messages) {
      EXPECT_EQ(arrow.sent, schedule.steps[arrow.sender].end);
      EXPECT_LE(arrow.arrived, schedule.steps[arrow.receiver].start);
    }
    // 2p - 2 messages in a chain, each with its step, and the last receive.
    EXPECT_EQ(schedule.duration, 2 * (2 * ranks - 2) + 1) << ranks << " ranks";
  }
}

TEST(Schedule, ABarrierHoldsAllThreadBlocksOfItsRank) {
  plan::Plan plan;
  plan.header = {.name = "meeting", .collective = Collective::custom, .ranks = 1};
  plan.header.input_blocks = plan.header.output_blocks = 2;
  plan.programs.resize(1);
  const plan::Step copy0{.operation = plan::Operation::copy,
                         .source = {plan::Buffer::input, 0},
                         .destination = {plan::Buffer::output, 0}};
  const plan::Step copy1{.operation = plan::Operation::copy,
                         .source = {plan::Buffer::input, 1},
                         .destination = {plan::Buffer::output, 1}};
  const plan::Step barrier{.operation = plan::Operation::barrier};
  plan.programs[0].thread_blocks = {{.channel = 0, .body = {copy0, copy0, copy0, barrier, copy0}},
                                    {.channel = 0, .body = {barrier, copy1}}};
  const Schedule schedule = schedule_of(plan);
  EXPECT_EQ(schedule.steps[3].start, 3);
  EXPECT_EQ(schedule.steps[5].start, 3);
  EXPECT_EQ(schedule.steps[6].start, 4);
}

TEST(Schedule, SaysWhereAPlanStandsStill) {
  const auto schedule = make_schedule(test::ring_all_reduce(4, false, false), 1);
  ASSERT_FALSE(schedule.ok());
  EXPECT_EQ(schedule.error().kind, ErrorKind::misuse);
  EXPECT_NE(schedule.error().message.find("deadlocks with 1 slots: rank 0, thread block 0"),
            std::string::npos)
      << schedule.error().message;
}

TEST(Schedule, RefusesSlotsThatCannotBe) {
  const auto schedule = make_schedule(three_messages(), 0);
  ASSERT_FALSE(schedule.ok());
  EXPECT_EQ(schedule.error().message, "slots is 0; a connection needs at least 1");
}

}  // namespace
}  // namespace unisono::verify
