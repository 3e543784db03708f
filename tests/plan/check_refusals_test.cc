// Every refusal of plan::check, by its own words: each bound from both sides, so that no later
// check can stand in for one that is missing.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "plan/check.h"
#include "plan/sample_plans.h"

namespace unisono::plan {
namespace {

struct Case {
  std::string says;
  std::function<void(Plan&)> change;
};

void expect_refusals(const Plan& right, const std::vector<Case>& cases) {
  ASSERT_TRUE(check(right, format_limits()).ok());
  for (const Case& one : cases) {
    Plan plan = right;
    one.change(plan);
    const Status status = check(plan, format_limits());
    ASSERT_FALSE(status.ok()) << one.says;
    EXPECT_EQ(status.error().message, one.says);
    EXPECT_EQ(status.error().kind, ErrorKind::misuse);
  }
}

Step& step(Plan& plan, std::size_t rank, std::size_t block, std::size_t node) {
  return std::get<Step>(plan.programs[rank].thread_blocks[block].body[node]);
}

Plan custom() {
  Plan plan = test::ring();
  plan.header.collective = Collective::custom;
  return plan;
}

TEST(CheckRefuses, HeadersByBothEndsOfEveryBound) {
  const std::string ring = "plan ring_all_reduce: ";
  expect_refusals(
      test::ring(),
      {{ring + "1048577 ranks; the plan format runs 1 to 1048576",
        [](Plan& it) { it.header.ranks = (1 << 20) + 1; }},
       {ring + "root -1 is not a rank; ranks are 0 to 3",
        [](Plan& it) {
          it.header.collective = Collective::broadcast;
          it.header.root = -1;
        }},
       {ring + "0 channels; the plan format runs 1 to 64",
        [](Plan& it) { it.header.channels = 0; }},
       {ring + "65 channels; the plan format runs 1 to 64",
        [](Plan& it) { it.header.channels = 65; }},
       {ring + "0 chunks per block; the plan format runs 1 to 1048576",
        [](Plan& it) { it.header.chunks_per_block = 0; }},
       {ring + "1048577 chunks per block; the plan format runs 1 to 1048576",
        [](Plan& it) { it.header.chunks_per_block = (1 << 20) + 1; }},
       {ring + "2 input and 1 output blocks; all_reduce of 4 ranks has 1 and 1",
        [](Plan& it) { it.header.input_blocks = 2; }},
       {ring + "serves 0 to 9223372036854775808 bytes; sizes are at most 9223372036854775807",
        [](Plan& it) { it.header.max_bytes = std::uint64_t{1} << 63; }}});
}

TEST(CheckRefuses, NumbersOfBlocksThatAPlanChoosesItself) {
  const std::string bounds = " output blocks; the plan format runs 0 to 1048576";
  const std::string ring = "plan ring_all_reduce: ";
  constexpr int most = 1 << 20;
  expect_refusals(
      custom(),
      {{ring + "-1 input and 1" + bounds, [](Plan& it) { it.header.input_blocks = -1; }},
       {ring + "1048577 input and 1" + bounds, [](Plan& it) { it.header.input_blocks = most + 1; }},
       {ring + "1 input and -1" + bounds, [](Plan& it) { it.header.output_blocks = -1; }},
       {ring + "1 input and 1048577" + bounds,
        [](Plan& it) { it.header.output_blocks = most + 1; }}});
}

TEST(CheckRefuses, ProgramsByBothEndsOfEveryBound) {
  const std::string rank_1 = "plan ring_all_reduce, rank 1: ";
  const std::string block = rank_1 + "thread block 0: ";
  const auto change = [](const std::function<void(RankProgram&)>& it) {
    return [it](Plan& plan) { it(plan.programs[1]); };
  };
  const auto change_block = [](const std::function<void(ThreadBlock&)>& it) {
    return [it](Plan& plan) { it(plan.programs[1].thread_blocks[0]); };
  };
  const auto change_loop = [](const std::function<void(Loop&)>& it) {
    return [it](Plan& plan) { it(std::get<Loop>(plan.programs[1].thread_blocks[0].body[1])); };
  };
  expect_refusals(
      test::ring(),
      {{rank_1 + "-1 scratch blocks; the plan format runs 0 to 1048576",
        change([](RankProgram& it) { it.scratch_blocks = -1; })},
       {rank_1 + "1048577 scratch blocks; the plan format runs 0 to 1048576",
        change([](RankProgram& it) { it.scratch_blocks = (1 << 20) + 1; })},
       {rank_1 + "4097 thread blocks; the plan format runs at most 4096",
        change([](RankProgram& it) { it.thread_blocks.resize(4097); })},
       {block + "channel -1; the plan has channels 0 to 0",
        change_block([](ThreadBlock& it) { it.channel = -1; })},
       {block + "sends to rank -2; ranks are 0 to 3, and -1 means none",
        change_block([](ThreadBlock& it) { it.send_peer = -2; })},
       {block + "receives from rank -2; ranks are 0 to 3, and -1 means none",
        change_block([](ThreadBlock& it) { it.recv_peer = -2; })},
       {block + "sends to rank 1, which is itself; use copy or reduce",
        change_block([](ThreadBlock& it) { it.send_peer = 1; })},
       {rank_1 + "thread block 1: receives from rank 0 on channel 0, as thread block 0 does; a "
                 "connection belongs to one thread block, so use another channel",
        change([](RankProgram& it) { it.thread_blocks.push_back({.recv_peer = 0}); })},
       {block + "a loop of 0 iterations; the plan format runs 1 to 16777216",
        change_loop([](Loop& it) { it.count = 0; })},
       {block + "a loop of 16777217 iterations; the plan format runs 1 to 16777216",
        change_loop([](Loop& it) { it.count = (1 << 24) + 1; })},
       {block + "a loop without steps; remove it",
        change_loop([](Loop& it) { it.body.clear(); })}});
}

// A rank that compiles its own program alone.
TEST(CheckRefuses, AProgramOfNoRankOrUnderAWrongHeader) {
  const Plan plan = test::ring();
  for (const int rank : {-1, 4}) {
    RankProgram program = plan.programs[0];
    program.rank = rank;
    const Status status = check(plan.header, program, format_limits());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "plan ring_all_reduce: a program for rank " +
                                          std::to_string(rank) + "; ranks are 0 to 3");
  }
  Header header = plan.header;
  header.name = "two words";
  EXPECT_FALSE(check(header, plan.programs[0], format_limits()).ok());
}

TEST(CheckRefuses, StepsByBothEndsOfEveryBound) {
  const std::string send = "plan ring_all_reduce, rank 1: thread block 0, step 0 (send): ";
  const auto change = [](const std::function<void(Step&)>& it) {
    return [it](Plan& plan) { it(step(plan, 1, 0, 0)); };
  };
  const std::string counts = "; the plan format runs 1 to 65536 chunks in one step";
  expect_refusals(
      test::ring(),
      {{send + "count 0" + counts, change([](Step& it) { it.count = 0; })},
       {send + "count 65537" + counts, change([](Step& it) { it.count = 65537; })},
       {send + "has a destination, which it does not use; remove it",
        change([](Step& it) { it.destination = {Buffer::output, 1}; })},
       {send + "has 1 peers of its own; only read_reduce may have them",
        change([](Step& it) { it.peers = {2}; })},
       {"plan ring_all_reduce, rank 1: thread block 0, step 6 (recv): has a source, which it does "
        "not use; remove it",
        [](Plan& it) { step(it, 1, 0, 4).source = {Buffer::output, 1}; }},
       {send + "an index has modulus -4; it must be positive, or 0 for none",
        change([](Step& it) { it.source.index.modulus = -4; })},
       {send + "an index uses loop variable j, but the step is not inside that loop",
        change([](Step& it) { it.source.index.coefficient[1] = 1; })},
       {send + "an index with values beyond 4611686018427387904, the format's limit",
        change([](Step& it) { it.source.index = std::numeric_limits<std::int64_t>::max(); })},
       {send + "waits for thread block 0, but the rank has only this thread block; remove the wait",
        change([](Step& it) { it.after = {{0, 1}}; })}});
}

TEST(CheckRefuses, WaitsForStepsThatAreNone) {
  const std::string copy = "plan one_sided, rank 0: thread block 1, step 1 (copy): ";
  const auto change = [](const Dependency& dependency) {
    return [dependency](Plan& plan) { step(plan, 0, 1, 1).after = {dependency}; };
  };
  Index negative;
  negative.modulus = -1;
  expect_refusals(
      test::one_sided(),
      {{copy + "waits for thread block -1; it can wait for 0 to 1 but not itself", change({-1, 1})},
       {copy + "waits for thread block 2; it can wait for 0 to 1 but not itself", change({2, 1})},
       {copy + "waits for thread block 1; it can wait for 0 to 1 but not itself", change({1, 1})},
       {copy + "an index has modulus -1; it must be positive, or 0 for none",
        change({0, negative})}});
}

TEST(CheckRefuses, OneSidedStepsWithoutTheirPeers) {
  const std::string block = "plan one_sided, rank 0: thread block 0, step ";
  const std::string read = block + "3 (read_reduce): ";
  const auto reads = [](std::vector<int> peers) {
    return [peers](Plan& plan) { step(plan, 0, 0, 3).peers = peers; };
  };
  const std::string others = "; peers are ranks 0 to 1 but not itself";
  expect_refusals(
      test::one_sided(),
      {{read + "reads from no peer; it needs at least one", reads({})},
       {read + "reads from rank -1" + others, reads({1, -1})},
       {read + "reads from rank 2" + others, reads({1, 2})},
       {read + "reads from rank 0" + others, reads({1, 0})},
       {read + "input[2] of rank 1 is outside of the buffer; it has 2 chunks, 0..1",
        [](Plan& it) { step(it, 0, 0, 3).source.index = 2; }},
       {block + "1 (signal): count 2, but it moves no chunks; it must be 1",
        [](Plan& it) { step(it, 0, 0, 1).count = 2; }},
       {block + "1 (signal): the thread block has no peer to send to; give it a send peer",
        [](Plan& it) { it.programs[0].thread_blocks[0].send_peer = -1; }},
       {block + "4 (put): the thread block has no peer to send to; give it a send peer",
        [](Plan& it) {
          it.programs[0].thread_blocks[0].send_peer = -1;
          step(it, 0, 0, 1).operation = Operation::wait;
        }}});
}

}  // namespace
}  // namespace unisono::plan
