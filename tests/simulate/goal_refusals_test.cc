// Every refusal of a GOAL file and of what is made of it, by its own words: no later check can
// stand in for one that is missing.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/wire.h"
#include "plan/builder.h"
#include "simulate/goal.h"
#include "simulate/goal_export.h"
#include "simulate/goal_run.h"
#include "simulate/goal_standstill.h"
#include "simulate/machines.h"
#include "support/page_end.h"

namespace unisono::simulate {
namespace {

using goal::Kind;

template <class T>
std::string refusal(const Result<T>& result) {
  if (result.ok()) return "no error";
  EXPECT_EQ(result.error().kind, ErrorKind::misuse);
  return result.error().message;
}

// What the reader says of one rank with this line.
std::string of_line(const std::string& line) {
  return refusal(goal::read_text("num_ranks 1\nrank 0 {\na: calc 1\n" + line + "\n}"));
}

TEST(GoalText, RefusesEachWrongWordInItsPlace) {
  struct Case {
    std::string line, says;
  };
  const std::vector<Case> cases{
      {"calc x", "column 6: expected a number of nanoseconds, found 'x'"},
      {"calc 70368744177665", "column 6: a number of nanoseconds is more than 70368744177664"},
      {"send 1x to 0", "column 7: expected 'b', found 'x'"},
      {"send 1b into 0", "column 9: expected 'to', found 'i'"},
      {"calc 1 !", "column 8: expected the end of the line, found '!'"},
      {"a needs a", "column 3: expected ':', 'requires' or 'irequires', found 'n'"},
      {"!", "column 1: expected a label, 'send', 'recv', 'calc' or '}', found '!'"},
      {"b: walk 1", "column 4: expected 'send', 'recv' or 'calc', found 'w'"},
      {"b requires a", "column 1: no operation of this rank above has the label 'b'"},
      {"a requires b", "column 12: no operation of this rank above has the label 'b'"},
      {"send 1b to 0 tag -1", "column 18: expected a tag, found '-'"},
      {"calc 1 cpu 256", "column 12: a cpu is more than 255"}};
  for (const Case& one : cases)
    EXPECT_EQ(of_line(one.line), "GOAL text, line 4, " + one.says) << one.line;
  EXPECT_EQ(of_line("send 1b to 0"), "no error");
}

TEST(GoalText, RefusesRanksThatCannotBe) {
  struct Case {
    std::string text, says;
  };
  const std::vector<Case> cases{
      {"num_ranks 1048577", "line 1, column 11: 1048577 ranks; there may be 1 to 1048576"},
      {"ranks 1", "line 1, column 1: expected 'num_ranks', found 'r'"},
      {"num_ranks x", "line 1, column 11: expected a number of ranks, found 'x'"},
      {"num_ranks 1 rank 1 {}", "line 1, column 18: rank 1; ranks are 0 to 0"},
      {"num_ranks 1 rank 0 {} rank 0 {}",
       "line 1, column 23: expected the end of the text after 1 ranks, found 'r'"},
      {"num_ranks 1 end", "line 1, column 13: expected 'rank' or the end of the text, found 'e'"}};
  for (const Case& one : cases)
    EXPECT_EQ(refusal(goal::read_text(one.text)), "GOAL text, " + one.says) << one.text;
}

TEST(GoalText, NothingBehindItsEndIsRead) {
  const std::string text =
      "num_ranks 2\nrank 0 { /* */ a: send 10b to 1 tag 3 cpu 0 nic 0 // x\n b: calc 1\n"
      "b requires a\n}\nrank 1 {\nrecv 10b from -1 tag -1\n}";
  unisono::test::PageEnd page(text.size());
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_NE(refusal(goal::read_text(page.hold(text.substr(0, size)))), "no error") << size;
  EXPECT_EQ(refusal(goal::read_text(page.hold(text))), "no error");
}

// One rank's part of a binary, of which each number may be wrong.
struct Node {
  std::uint32_t waits = 0;
  std::uint8_t kind = 3;
  std::uint32_t peer = 0;
  std::uint64_t size = 1;
  std::uint32_t tag = 0;
  std::uint32_t ends = 0, first_end = 0, starts = 0, first_start = 0;
};
struct Binary {
  std::uint64_t magic = goal::magic;
  std::uint32_t ranks = 1;
  std::uint64_t begin = 14 + 16 - 8;
  std::optional<std::uint64_t> end;
  std::uint32_t node_count = 3, root_count = 2;
  std::vector<std::uint32_t> roots{0, 1};
  // The third waits for the others.
  std::vector<Node> nodes{{.ends = 1}, {.starts = 1, .first_start = 1}, {.waits = 2}};
  std::vector<std::uint32_t> edges{2, 2};
  std::size_t more_bytes = 0;

  std::string bytes() const {
    WireWriter part;
    part.number(node_count);
    part.number(root_count);
    for (const std::uint32_t root : roots) part.number(root);
    for (const Node& node : nodes) {
      part.number(node.waits);
      part.number(node.kind);
      part.number(node.peer);
      part.number(node.size);
      part.number(node.tag);
      part.number(std::uint16_t{0});
      for (const std::uint32_t number : {node.ends, node.first_end, node.starts, node.first_start})
        part.number(number);
    }
    for (const std::uint32_t edge : edges) part.number(edge);
    part.raw(std::vector<std::byte>(more_bytes));
    WireWriter out;
    out.number(magic);
    out.number(ranks);
    out.number(std::uint16_t{0});
    out.number(begin);
    out.number(end.value_or(begin + part.bytes().size()));
    out.raw(part.bytes());
    return std::string(as_text(out.bytes()));
  }
};

std::string of_binary(const std::function<void(Binary&)>& change) {
  Binary binary;
  change(binary);
  return refusal(goal::read_binary(binary.bytes()));
}

TEST(GoalBinary, RefusesEachNumberThatCannotBe) {
  struct Case {
    std::string says;
    std::function<void(Binary&)> change;
  };
  const std::vector<Case> cases{
      {"0: the magic is 4224; it must be 4223", [](Binary& it) { ++it.magic; }},
      {"8: 1048577 ranks; there may be 1 to 1048576", [](Binary& it) { it.ranks = (1 << 20) + 1; }},
      {"14: rank 0 lies from 22 to 21; it must lie from 22 to 163 at most",
       [](Binary& it) { it.end = 21; }},
      {"14: rank 0 lies from 22 to 164; it must lie from 22 to 163 at most",
       [](Binary& it) { it.end = 164; }},
      {"14: rank 0 lies from 21 to 162; it must lie from 22 to 163 at most",
       [](Binary& it) { it.begin = 21; }},
      {"30: rank 0 has 7 bytes; it needs 8 at least", [](Binary& it) { it.end = 29; }},
      {"30: rank 0 has 3 nodes and 4 roots in 149 bytes, which do not fit",
       [](Binary& it) {
         it.root_count = 4;
         it.roots = {0, 1, 2, 2};
       }},
      {"30: rank 0 has 7 nodes and 2 roots in 141 bytes, which do not fit",
       [](Binary& it) { it.node_count = 7; }},
      {"30: rank 0 has 3 nodes and 2 roots in 142 bytes, which do not fit",
       [](Binary& it) { it.more_bytes = 1; }},
      {"50: node 0 is of type 0; it must be 1 (send), 2 (recv) or 3 (calc)",
       [](Binary& it) { it.nodes[0].kind = 0; }},
      {"50: node 0 is of type 4; it must be 1 (send), 2 (recv) or 3 (calc)",
       [](Binary& it) { it.nodes[0].kind = 4; }},
      {"55: node 0 has the size 70368744177665; it must be at most 2^46",
       [](Binary& it) { it.nodes[0].size = goal::max_size + 1; }},
      {"51: node 0 is a recv with rank 1; ranks are 0 to 0",
       [](Binary& it) {
         it.nodes[0].kind = 2;
         it.nodes[0].peer = 1;
       }},
      {"63: node 0 sends with any tag",
       [](Binary& it) {
         it.nodes[0].kind = 1;
         it.nodes[0].tag = goal::any;
       }},
      {"69: node 0 has edges 1 to 1; the next are from 0 on, of 2",
       [](Binary& it) { it.nodes[0].first_end = 1; }},
      {"69: node 0 has edges 0 to 2; the next are from 0 on, of 2",
       [](Binary& it) { it.nodes[0].ends = 3; }},
      {"163: an edge to node 3; the rank has 3", [](Binary& it) { it.edges[0] = 3; }},
      {"163: rank 0 has 3 edges, of which nodes name 2", [](Binary& it) { it.edges.push_back(2); }},
      {"30: node 2 is said to wait for 1 others, but 2 edges lead to it",
       [](Binary& it) { it.nodes[2].waits = 1; }},
      {"30: node 1 waits for nothing, but is not among the roots in its place",
       [](Binary& it) {
         it.root_count = 1;
         it.roots = {0};
       }},
      {"30: node 1 waits for nothing, but is not among the roots in its place",
       [](Binary& it) { it.roots[1] = 2; }},
      // What stands where its root would is node 0's number of requirements, which is its own
      // number.
      {"30: node 1 waits for nothing, but is not among the roots in its place",
       [](Binary& it) {
         it.root_count = 0;
         it.roots = {};
         it.node_count = 2;
         it.nodes = {{.waits = 1}, {.ends = 1}};
         it.edges = {0};
       }},
      {"30: 3 roots, but only 2 nodes wait for nothing", [](Binary& it) {
         it.root_count = 3;
         it.roots = {0, 1, 2};
       }}};
  EXPECT_EQ(of_binary([](Binary&) {}), "no error");
  for (const Case& one : cases) EXPECT_EQ(of_binary(one.change), "GOAL binary, byte " + one.says);
}

TEST(GoalBinary, NothingBehindItsEndIsRead) {
  const std::string bytes = Binary().bytes();
  unisono::test::PageEnd page(bytes.size());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string said = refusal(goal::read_binary(page.hold(bytes.substr(0, size))));
    EXPECT_NE(said, "no error") << size;
    if (size >= 14) continue;
    EXPECT_EQ(said, "GOAL binary, byte " + std::to_string(size) +
                        ": the file ends in its header of 14 bytes");
  }
}

plan::Plan plan_of(const plan::Step& step, std::int64_t times) {
  plan::Plan plan;
  plan.header.name = "test";
  plan.header.collective = Collective::custom;
  plan.header.ranks = 2;
  for (int rank = 0; rank < 2; ++rank) {
    plan::ProgramBuilder builder(rank);
    plan::BlockBuilder block = builder.block(0, 1 - rank, 1 - rank);
    block.loop(times);
    block.step(step);
    block.end_loop();
    plan.programs.push_back(builder.take());
  }
  return plan;
}

TEST(GoalExport, RefusesWhatGoalCannotHold) {
  const Machine machine = log_gops_machine(2, {});
  const plan::Plan signals = plan_of({.operation = plan::Operation::signal}, 1);
  EXPECT_EQ(refusal(goal_of_plan(machine, signals, 1, DataType::float32)),
            "GOAL cannot express one-sided operations; the plan has a step 'signal'");
  const plan::Plan copies =
      plan_of({.source = plan::input(0), .destination = plan::output(0)}, 1 << 24);
  const std::int64_t tiles = 6;
  const auto slot = static_cast<std::int64_t>(machine.protocols[0].slot_bytes);
  EXPECT_EQ(refusal(goal_of_plan(machine, copies, tiles * slot, DataType::uint8)),
            "a rank's schedule may have more than 268435456 operations; use larger slots or fewer "
            "tiles");
}

TEST(GoalExport, RefusesBuffersThatNoDeviceHas) {
  const Machine machine = log_gops_machine(2, {});
  const std::string says =
      "blocks of 274877906945 elements; a simulated buffer holds at most 256 GiB, which is "
      "274877906944 elements in each of 1 blocks";
  const std::int64_t count = (std::int64_t{1} << 38) + 1;
  const plan::Plan copy = plan_of({.source = plan::input(0), .destination = plan::output(0)}, 1);
  EXPECT_EQ(refusal(goal_of_plan(machine, copy, count, DataType::uint8)), says);
  CollectiveCall call = test::call_of(Collective::all_reduce, *place(machine, 2), count);
  call.type = DataType::uint8;
  EXPECT_EQ(refusal(goal_of_collective(machine, test::entry(Collective::all_reduce, "ring"), call)),
            says);
}

TEST(GoalExport, RefusesWorkloadsThatCannotBe) {
  const Machine machine = log_gops_machine(2, {});
  Workload workload;
  workload.name = "step";
  workload.ranks = 2;
  workload.lists = {{{0, 1}, {{.duration_ns = 1}}}};
  EXPECT_EQ(refusal(goal_of_workload(machine, workload)), "no error");
  workload.iterations = 0;
  EXPECT_EQ(refusal(goal_of_workload(machine, workload)),
            "step: 0 iterations; it must be 1 to 1000000");
  workload.iterations = 1'000'000;
  workload.lists[0].tasks.resize(90, {.duration_ns = 1});
  EXPECT_EQ(refusal(goal_of_workload(machine, workload)),
            "a rank's schedule may have more than 268435456 operations; use larger slots or fewer "
            "tiles");
}

TEST(GoalRun, StopsAtTheMostEvents) {
  const auto schedule = goal::read_text("num_ranks 1\nrank 0 {\ncalc 1\ncalc 1\ncalc 1\n}");
  ASSERT_TRUE(schedule.ok());
  const Machine machine = log_gops_machine(1, {});
  EXPECT_EQ(refusal(goal::run(machine, *schedule, {.max_events = 2})),
            "the simulation needs more than 2 events");
}

// The executor's own mistake would be told as such.
TEST(GoalRun, OperationsThatNothingKeepsAreABug) {
  const auto schedule = goal::read_text("num_ranks 1\nrank 0 {\ncalc 1\n}");
  ASSERT_TRUE(schedule.ok());
  const Status status = goal::check_progress(*schedule, {{goal::State::waits}});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::bug);
  EXPECT_NE(status.error().message.find("1 GOAL operations never began"), std::string::npos);
}

}  // namespace
}  // namespace unisono::simulate
