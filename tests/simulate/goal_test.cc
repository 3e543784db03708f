// GOAL: both forms read and written, run as LogGOPSim runs them, and refused where they are wrong.
#include "simulate/goal.h"

#include <gtest/gtest.h>

#include <random>

#include "simulate/goal_export.h"
#include "simulate/goal_run.h"
#include "simulate/machines.h"

namespace unisono::simulate {
namespace {

using goal::Schedule;

constexpr std::string_view ping = R"(// two ranks
num_ranks 2

rank 0 {
  l1: send 10b to 1 tag 3 cpu 0 nic 0
  calc 500   /* no label */
  l2: recv 20b from 1 tag -1
  l2 requires l1
}
rank 1 {
l1: recv 10b from -1 tag 3
l2: send 20b to 0 tag 4
l3: calc 100 cpu 1
l2 requires l1
l3 irequires l1
}
)";

Schedule parsed(std::string_view text) {
  auto schedule = goal::read(text);
  EXPECT_TRUE(schedule.ok()) << schedule.error().message;
  return schedule.ok() ? std::move(*schedule) : Schedule{};
}

std::string refusal(std::string_view contents) {
  const auto schedule = goal::read(contents);
  if (!schedule.ok()) return schedule.error().message;
  ADD_FAILURE() << "it was read";
  return "";
}

std::string standstill(std::string_view text) {
  const Schedule schedule = parsed(text);
  const Machine machine = log_gops_machine(static_cast<int>(schedule.ranks.size()), {});
  const auto result = goal::run(machine, schedule, {});
  if (!result.ok()) return result.error().message;
  ADD_FAILURE() << "it ran";
  return "";
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Goal, TextAndBinaryReadBackTheSame) {
  const Schedule schedule = parsed(ping);
  ASSERT_EQ(schedule.ranks.size(), 2u);
  EXPECT_EQ(schedule.ranks[0].operations()[2],
            (goal::Operation{.size = 20, .peer = 1, .tag = goal::any, .kind = goal::Kind::recv}));
  EXPECT_EQ(schedule.ranks[1].after_start(0).size(), 1u);
  EXPECT_EQ(parsed(goal::write_text(schedule)), schedule);
  const std::string binary = goal::write_binary(schedule);
  EXPECT_EQ(parsed(binary), schedule);
  // Magic, ranks, largest cpu and nic; then the first part, behind the table of two.
  EXPECT_EQ(binary.substr(0, 14), std::string("\x7f\x10\0\0\0\0\0\0\2\0\0\0\1\0", 14));
  EXPECT_EQ(binary.size(), 14u + 2 * 16 + 2 * 8 + 4 * (2 + 1) + 39 * 6 + 4 * 3);
}

TEST(Goal, TextsThatAreWrongNameLineAndColumn) {
  EXPECT_CONTAINS(refusal(""), "line 1, column 1: expected 'num_ranks'");
  EXPECT_CONTAINS(refusal("num_ranks 0"), "line 1, column 11: 0 ranks");
  EXPECT_CONTAINS(refusal("num_ranks 1\nrank 0 {\nsend 1b to 4\n}"),
                  "line 3, column 12: rank 4; ranks are 0 to 0");
  EXPECT_CONTAINS(refusal("num_ranks 1\nrank 0 {\ncalc 1 tag 3\n}"), "line 3, column 8");
  EXPECT_CONTAINS(refusal("num_ranks 1\nrank 0 {\na: calc 1\na: calc 1\n}"),
                  "label 'a' is defined twice");
  EXPECT_CONTAINS(refusal("num_ranks 1\nrank 0 {\na: calc 1\na requires b\n}"),
                  "line 4, column 12: no operation of this rank above has the label 'b'");
  EXPECT_CONTAINS(refusal("num_ranks 1\nrank 0 {\ncalc 1\n"),
                  "line 4, column 1: the text ends inside rank 0, which begins at line 2");
  EXPECT_CONTAINS(refusal("num_ranks 2\nrank 0 {\n}\n"), "the text ends after 1 of 2 ranks");
  EXPECT_CONTAINS(refusal("num_ranks 2\nrank 1 {\n}\n"), "rank 0 is expected");
  EXPECT_CONTAINS(refusal("num_ranks 1\nrank 0 {\ncalc 99999999999999999999\n}"), "is more than");
}

TEST(Goal, CyclesAreShownWhereverTheyAre) {
  const std::string_view cycle =
      "num_ranks 1\nrank 0 {\na: calc 1\nb: calc 2\nc: calc 3\nb requires a\n"
      "b requires c\nc irequires b\n}";
  EXPECT_CONTAINS(refusal(cycle),
                  "rank 0, which begins at line 2, column 1: the requirements form a cycle: "
                  "operation 1 (calc of 2 ns) requires operation 2 requires operation 1");
}

TEST(Goal, BinariesThatAreWrongNameTheByte) {
  const std::string good = goal::write_binary(parsed(ping));
  for (std::size_t size = 8; size < good.size(); ++size)
    EXPECT_CONTAINS(refusal(good.substr(0, size)), "GOAL binary, byte ");
  const auto with = [&](std::size_t at, char value) {
    std::string changed = good;
    changed[at] = value;
    return refusal(changed);
  };
  EXPECT_CONTAINS(with(8, 0), "byte 8: 0 ranks");
  EXPECT_CONTAINS(with(14, 9), "byte 14: rank 0 lies from 9");
  const std::size_t first_node = 14 + 2 * 16 + 8 + 4 * 2;
  EXPECT_CONTAINS(with(first_node + 4, 7), "node 0 is of type 7");
  EXPECT_CONTAINS(with(first_node + 5, 7), "node 0 is a send with rank 7");
  EXPECT_CONTAINS(with(first_node, 1), "node 0 is said to wait for 1 others, but 0 edges");
  EXPECT_CONTAINS(with(first_node + 23, 9), "node 0 has edges 0 to 8");
}

TEST(Goal, CostsAreLogGops) {
  // o 100, L 1000, g 50, G 2, O 0: a message of 11 bytes arrives at o + L, is there 20 later.
  const Machine machine = log_gops_machine(
      2, {.latency_ns = 1000, .overhead_ns = 100, .gap_ns = 50, .gap_ns_per_byte = 2});
  const auto time = [&](std::string_view text, const goal::Options& options = {}) {
    const auto result = goal::run(machine, parsed(text), options);
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? to_ns(result->finished) : -1;
  };
  const std::string message =
      "num_ranks 2\nrank 0 {\nsend 11b to 1\n}\nrank 1 {\na: recv 11b from 0\nb: calc 7\n"
      "b requires a\n}";
  EXPECT_EQ(time(message), 100 + 1000 + 100 + 20 + 7);
  // Two sends: the second leaves when cpu and port are free: max(o, g + 20).
  EXPECT_EQ(time("num_ranks 2\nrank 0 {\nsend 11b to 1\nsend 11b to 1 tag 1\n}\nrank 1 {\n"
                 "recv 11b from 0\nrecv 11b from 0 tag 1\n}"),
            100 + 100 + 1000 + 20 + 100 + 20);
  // A large one ends for its sender when it is received: at 1100, after the receiver's calc at
  // 3000.
  const std::string late =
      "num_ranks 2\nrank 0 {\na: send 11b to 1\nb: calc 1\nb requires a\n}\nrank 1 {\n"
      "a: calc 3000\nb: recv 11b from 0\nb requires a\n}";
  EXPECT_EQ(time(late), 3000 + 120);
  EXPECT_EQ(time(late, {.rendezvous_bytes = 8}), 3000 + 120);
  // A cpu of its own does not let an operation begin before what it requires has ended.
  EXPECT_EQ(time("num_ranks 1\nrank 0 {\na: calc 100\nb: calc 10 cpu 1\nb requires a\n"
                 "c: calc 500 cpu 2\nc irequires a\n}"),
            500);
}

TEST(Goal, AStandstillShowsWhoWaitsForWhom) {
  EXPECT_CONTAINS(standstill("num_ranks 2\nrank 0 {\na: recv 1b from 1\nb: send 1b to 1\n"
                             "b requires a\n}\nrank 1 {\na: recv 1b from 0\nb: send 1b to 0\n"
                             "b requires a\n}"),
                  "deadlocks with 4 operations that have not ended; they wait for each other:\n"
                  "  rank 0, operation 0 (recv of 1 bytes from 1 with tag 0) waits for rank 1\n"
                  "  rank 1, operation 0 (recv of 1 bytes from 0 with tag 0) waits for rank 0");
  EXPECT_CONTAINS(standstill("num_ranks 2\nrank 0 {\nrecv 1b from 1 tag 5\n}\nrank 1 {\n}"),
                  "rank 1 has no send for it that has not begun");
  EXPECT_CONTAINS(standstill("num_ranks 2\nrank 0 {\nsend 1b to 1 tag 5\n}\nrank 1 {\n}"),
                  "a message from rank 0 to rank 1 with tag 5 had not been received");
  const Schedule schedule = parsed("num_ranks 3\nrank 0 {\n}\nrank 1 {\n}\nrank 2 {\n}");
  const auto result = goal::run(log_gops_machine(2, {}), schedule, {});
  ASSERT_FALSE(result.ok());
  EXPECT_CONTAINS(result.error().message, "ranks is 3; loggops has 2");
}

// Every algorithm as GOAL: all its messages match, and there are as many as when it is simulated.
TEST(GoalExport, EveryAlgorithmRunsToItsEnd) {
  const Machine machine = test::cluster(2, 4, 2);
  int exported = 0;
  for (const algorithm::Entry& entry : algorithm::entries()) {
    CollectiveCall call = test::call_of(entry.collective, *place(machine, 8), 1001);
    call.request.channels = 2;
    if (!entry.supports(call.request).ok()) continue;
    const auto schedule = goal_of_collective(machine, entry, call);
    ASSERT_TRUE(schedule.ok()) << schedule.error().message;
    const auto result = goal::run(machine, *schedule, {});
    ASSERT_TRUE(result.ok()) << entry.plan_name() << ": " << result.error().message;
    const auto simulated = simulate_collective(machine, entry, call, {.collapse = false});
    ASSERT_TRUE(simulated.ok());
    EXPECT_EQ(result->messages, simulated->run.messages) << entry.plan_name();
    EXPECT_EQ(result->bytes, simulated->run.bytes) << entry.plan_name();
    ++exported;
  }
  EXPECT_GT(exported, 30);
}

// With one thread block and nothing that only one of the models knows, a ring takes the same time.
TEST(GoalExport, ARingTakesAsLongAsItsPlan) {
  const Machine machine =
      log_gops_machine(8, {.latency_ns = 1000, .gap_ns = 10, .gap_ns_per_byte = 0.5});
  const algorithm::Entry& ring = test::entry(Collective::all_gather, "ring");
  const CollectiveCall call = test::call_of(Collective::all_gather, *place(machine, 8), 4096);
  const auto simulated = simulate_collective(machine, ring, call, {});
  const auto result = goal::run(machine, *goal_of_collective(machine, ring, call), {});
  ASSERT_TRUE(simulated.ok() && result.ok());
  EXPECT_NEAR(to_ns(result->finished), to_ns(simulated->run.finished), 1);
}

TEST(GoalExport, WorkloadsKeepTheirOrder) {
  const Machine machine = log_gops_machine(4, {.latency_ns = 1000, .overhead_ns = 100});
  Workload workload;
  workload.name = "step";
  workload.ranks = 4;
  workload.iterations = 2;
  workload.communicators = {{"all", {{0, 1, 2, 3}}}, {"pairs", {{0, 1}, {2, 3}}}};
  workload.calls = {{.algorithm = "ring", .bytes = 4096}};
  workload.lists = {
      {{0, 1, 2, 3},
       {{.duration_ns = 5000},
        {.activity = Activity::collective, .stream = 1, .after = {0}},
        {.activity = Activity::send, .stream = 2, .is_offset = true, .peer = 1, .bytes = 64},
        {.activity = Activity::recv, .stream = 3, .is_offset = true, .peer = -1, .bytes = 64},
        {.activity = Activity::collective, .stream = 1, .communicator = 1, .after = {3}},
        {.duration_ns = 7000, .after = {1, 2}}}}};
  const auto schedule = goal_of_workload(machine, workload);
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  const auto result = goal::run(machine, *schedule, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  // Two rounds of 12 us of compute, with six messages of the ring between them.
  EXPECT_GT(to_ns(result->finished), 2 * (5000 + 7000 + 6 * 1000));
  EXPECT_EQ(result->messages, 2 * (4 * 6 + 4 + 4 * 2));
}

}  // namespace
}  // namespace unisono::simulate
