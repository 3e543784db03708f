// Synthesis: schedules keep to their links, reach known optima, and compile to proved plans.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "graphs.h"
#include "simulate/machine.h"
#include "support/interpreter.h"
#include "support/sanitized.h"
#include "synthesize/program.h"

namespace unisono::synthesize {
namespace {

constexpr std::array all_served{Collective::all_gather, Collective::reduce_scatter,
                                Collective::all_reduce};

Schedule value_of(Result<Schedule> schedule) {
  EXPECT_TRUE(schedule.ok()) << schedule.error().message;
  return schedule.ok() ? std::move(*schedule) : Schedule{};
}

// Compiles, proves, and runs `runs` times on random numbers.
std::string fault_of_plan(const Schedule& schedule, bool in_place, int runs) {
  const auto compiled = compile_schedule(schedule, "found", {.in_place = in_place});
  if (!compiled.ok()) return compiled.error().message;
  return unisono::test::find_fault(compiled->plan, runs, 5, 2).value_or("");
}

TEST(Synthesize, KeepsToTheLinksOfAnyGraph) {
  for (int round = 0; round < (unisono::test::is_sanitized ? 20 : 150); ++round) {
    std::mt19937 random(static_cast<unsigned>(round) + 1);
    const LinkGraph graph = test::random_graph(random);
    const Goal goal{.collective = all_served[static_cast<std::size_t>(round % 3)],
                    .chunks = 1 + round % 4,
                    .chunk_bytes = 1 + static_cast<std::int64_t>(random() % 100000),
                    .seed = static_cast<std::uint64_t>(round),
                    .tries = 2};
    const Schedule schedule = value_of(synthesize(graph, goal));
    EXPECT_EQ(test::fault_of(schedule, graph, goal.chunk_bytes), "") << "round " << round;
    EXPECT_LE(schedule.bound, schedule.duration) << "round " << round;
    if (round % 5 == 0) {
      EXPECT_EQ(fault_of_plan(schedule, round % 2 == 0, 3), "") << "round " << round;
    }
  }
}

TEST(Synthesize, FindsTheSameScheduleForTheSameSeedAndOthersForOthers) {
  const Goal goal{.chunks = 2, .seed = 7, .tries = 1};
  const LinkGraph graph = test::grid(3, 4);
  const Schedule one = value_of(synthesize(graph, goal));
  EXPECT_EQ(one.transfers, value_of(synthesize(graph, goal)).transfers);
  Goal other = goal;
  other.seed = 8;
  EXPECT_NE(one.transfers, value_of(synthesize(graph, other)).transfers);
}

// In a ring both ways, half of the chunks come from each side: n / 2 moments.
TEST(Synthesize, IsOptimalOnARing) {
  for (const int ranks : {3, 5, 8, 9}) {
    const LinkGraph ring = test::grid(1, ranks, 0, true);
    const Goal goal{.chunk_bytes = 25000, .tries = 1};  // 1 us over a link
    const Schedule schedule = value_of(synthesize(ring, goal));
    EXPECT_EQ(schedule.duration, simulate::from_ns(1000) * (ranks / 2)) << ranks;
    EXPECT_NEAR(static_cast<double>(schedule.bound), static_cast<double>(schedule.duration), 10);
  }
}

TEST(Synthesize, IsNearItsBoundOnGridsAndSwitches) {
  struct Case {
    LinkGraph graph;
    double most;  // of the bound
  };
  for (const Case& one : {Case{test::grid(4, 4), 1.15}, Case{test::grid(8, 8), 1.1},
                          Case{test::grid(4, 4, 500, true), 1.25}, Case{test::star(8), 1.35},
                          Case{test::dgx_1(), 1.35}}) {
    for (const Collective collective : all_served) {
      const Schedule schedule =
          value_of(synthesize(one.graph, {.collective = collective, .chunks = 4, .tries = 8}));
      EXPECT_LE(static_cast<double>(schedule.duration),
                one.most * static_cast<double>(schedule.bound))
          << one.graph.name << " " << name(collective);
      EXPECT_EQ(fault_of_plan(schedule, false, 0), "") << one.graph.name;
    }
  }
}

// Two nodes whose NICs are ten times slower than what is inside: every chunk crosses once.
TEST(Synthesize, SendsNothingTwiceBetweenNodes) {
  simulate::Machine machine = simulate::log_gops_machine(4, {.latency_ns = 500});
  machine.nodes = 2;
  machine.node_gb_s = 200;
  machine.nics_per_node = 4;
  machine.nic_gb_s = 20;
  machine.nic_of_local_rank = {0, 1, 2, 3};
  machine.levels = {{.name = "fabric", .nodes = 2, .latency_ns = 2000}};
  const auto graph = link_graph_of(machine, 8, 0);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->switches, 2 + 8 + 1);
  for (const int chunks : {1, 4}) {
    const Schedule schedule = value_of(synthesize(*graph, {.chunks = chunks, .tries = 1}));
    int crossings = 0;
    for (const Transfer& one : schedule.transfers) crossings += one.from / 4 != one.to / 4 ? 1 : 0;
    EXPECT_EQ(crossings, 8 * chunks);
    EXPECT_EQ(test::fault_of(schedule, *graph, 1 << 20), "");
  }
}

TEST(Synthesize, CallsOffWhatCannotBe) {
  const auto complaint = [](const LinkGraph& graph, const Goal& goal) {
    const auto schedule = synthesize(graph, goal);
    return schedule.ok() ? "" : schedule.error().message;
  };
  const LinkGraph ring = test::grid(1, 3, 0, true);
  EXPECT_EQ(complaint(ring, {.collective = Collective::all_to_all}),
            "plans for all_to_all are not synthesized; all_gather, reduce_scatter and all_reduce "
            "are");
  EXPECT_EQ(complaint(ring, {.chunks = 0}),
            "chunks, chunk_bytes and tries are 0, 1048576 and 4; they must be 1 or more, and tries "
            "at most 1024");
  EXPECT_EQ(complaint(ring, {.chunks = 1 << 22}),
            "all_gather on 3 ranks with 4194304 chunks each needs more than 8388608 transfers; use "
            "fewer chunks");
  LinkGraph wrong = ring;
  wrong.links[1].to = 3;
  EXPECT_EQ(complaint(wrong, {}),
            "links of grid_1x3: link 1, from 1 to 3, ends at 3; there are 3 ranks and 0 switches, "
            "0 to 2");
  wrong = ring;
  wrong.links[0].gb_s = 0;
  EXPECT_EQ(complaint(wrong, {}),
            "links of grid_1x3: link 0, from 0 to 1, has a bandwidth of 0 GB/s; it must be 1e-6 to "
            "1e9");
  wrong = {"one_way", 2, 0, {{0, 1}}};
  EXPECT_EQ(complaint(wrong, {}),
            "links of one_way: no path leads from rank 1 to rank 0; every rank must be able to "
            "reach every other rank");
}

TEST(Synthesize, RefusesTransfersThatMakeNoProgram) {
  const auto complaint = [](const Transfer& one) {
    const auto trace = trace_of({.ranks = 2, .transfers = {one}}, "wrong");
    return trace.ok() ? "" : trace.error().message;
  };
  EXPECT_EQ(complaint({.chunk = 0, .from = 0, .to = 2}),
            "a transfer from rank 0 to rank 2; there are 2 ranks, and both ends must differ");
  EXPECT_EQ(complaint({.chunk = 2, .from = 0, .to = 1}),
            "a transfer of chunk 2; there are 2 * 1 chunks");
  EXPECT_EQ(complaint({.chunk = 0, .from = 0, .to = 1, .reduces = true}),
            "a transfer of chunk 0 reduces; an all_gather only moves data");
  EXPECT_NE(complaint({.chunk = 1, .from = 0, .to = 1}), "");
}

}  // namespace
}  // namespace unisono::synthesize
