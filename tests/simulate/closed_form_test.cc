// Simulated times against formulas worked out by hand.
#include <gtest/gtest.h>

#include "simulate/machines.h"

namespace unisono::simulate {
namespace {

constexpr LogGops parameters{.latency_ns = 3700,
                             .overhead_ns = 200,
                             .gap_ns = 5,
                             .gap_ns_per_byte = 0.04,
                             .overhead_ns_per_byte = 0.01};

ExecutorResult run(const Machine& machine, Collective collective, std::string_view algorithm,
                   int ranks, std::int64_t count, CollectiveOptions options = {}) {
  const auto placement = place(machine, ranks);
  const auto result = simulate_collective(machine, test::entry(collective, algorithm),
                                          test::call_of(collective, *placement, count), options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? result->run : ExecutorResult{};
}

// Each of the 2 (p - 1) messages of a chunk starts when the one before has arrived: o + L + o, and
// G for all bytes but the first.
TEST(ClosedForm, RingAllReduceIsAChainOfLogGopsMessages) {
  for (const int ranks : {2, 3, 5, 16, 64}) {
    for (const int chunk_elements : {1, 100, 16384}) {
      const Machine machine = log_gops_machine(ranks, parameters);
      for (const bool collapse : {false, true}) {
        const ExecutorResult result =
            run(machine, Collective::all_reduce, "ring", ranks,
                std::int64_t{chunk_elements} * ranks, {.collapse = collapse});
        const double message_ns = 2 * 200 + 3700 + 0.04 * (4 * chunk_elements - 1);
        const double hops = 2 * (ranks - 1);
        // Rounded to picoseconds once a message.
        EXPECT_NEAR(to_ns(result.finished), hops * message_ns, hops * 1e-3)
            << ranks << " ranks, " << chunk_elements << " elements a chunk";
      }
    }
  }
}

TEST(ClosedForm, ReductionsAndLaunchAddToTheChain) {
  Machine machine = log_gops_machine(4, parameters);
  machine.reduce_gb_s = 50;
  machine.protocols[0].launch_ns = 1234;
  const ExecutorResult result = run(machine, Collective::all_reduce, "ring", 4, 4 * 1024);
  const double message_ns = 2 * 200 + 3700 + 0.04 * 4095;
  EXPECT_NEAR(to_ns(result.finished), 1234 + 6 * message_ns + 3 * 4096 / 50.0, 0.01);
}

// Many tiles fill a pipeline: a chain of p - 1 hops of b tiles takes p - 2 + b times the slower of
// what a hop's ports and thread blocks need, plus what the last tile has left to go.
TEST(ClosedForm, TilesOfAChainOverlap) {
  constexpr int ranks = 6;
  Machine machine = log_gops_machine(ranks, {.latency_ns = 100, .gap_ns_per_byte = 0.1});
  machine.protocols[0].slot_bytes = 4096;
  machine.slots = 64;
  constexpr int tiles = 50;
  const ExecutorResult result =
      run(machine, Collective::broadcast, "ring", ranks, std::int64_t{tiles} * 1024);
  const double tile_ns = 0.1 * 4095;
  EXPECT_NEAR(to_ns(result.finished), (tiles + ranks - 2) * tile_ns + (ranks - 1) * 100, 1);
}

// With one slot, each tile waits for the one before to be received and for that to be known.
TEST(ClosedForm, OneSlotMakesEveryTileARoundTrip) {
  Machine machine = log_gops_machine(2, {.latency_ns = 100, .gap_ns_per_byte = 0.1});
  machine.protocols[0].slot_bytes = 4096;
  machine.slots = 1;
  constexpr int tiles = 7;
  const ExecutorResult result =
      run(machine, Collective::broadcast, "ring", 2, std::int64_t{tiles} * 1024);
  const double one_way_ns = 100 + 0.1 * 4095;
  EXPECT_NEAR(to_ns(result.finished), tiles * one_way_ns + (tiles - 1) * 100, 0.1);
}

// Tiles follow each other on the wire in exchanges between nodes, too, which go both ways: many
// tiles cost hardly more latency than one.
TEST(ClosedForm, TilesOfExchangesBetweenNodesOverlap) {
  Machine machine = test::cluster(4, 2, 2);
  for (Level& level : machine.levels) level.latency_ns = 1e6;
  machine.slots = 64;
  const auto time_ns = [&](Collective collective, std::string_view algorithm, int tiles) {
    constexpr std::int64_t count = 1 << 16;
    machine.protocols[0].slot_bytes = 4 * 4 * count / tiles;
    return to_ns(run(machine, collective, algorithm, 8, count).finished);
  };
  for (const auto& [collective, algorithm] :
       {std::pair(Collective::all_gather, "hierarchical_recursive"),
        std::pair(Collective::all_gather, "hierarchical_recursive_direct"),
        std::pair(Collective::all_gather, "hierarchical_bruck"),
        std::pair(Collective::reduce_scatter, "hierarchical_recursive"),
        std::pair(Collective::all_reduce, "hierarchical_recursive")}) {
    const double one = time_ns(collective, algorithm, 1);
    const double many = time_ns(collective, algorithm, 16);
    EXPECT_LT(many, one + 0.5e6) << name(collective) << " " << algorithm;
    EXPECT_GT(one, 2e6);
  }
}

// All ranks send to all others at once: the port carries one message after another.
TEST(ClosedForm, APortCarriesOneMessageAfterAnother) {
  constexpr int ranks = 5;
  constexpr std::int64_t bytes = 4 * 1000;
  const Machine machine =
      log_gops_machine(ranks, {.latency_ns = 100, .gap_ns = 7, .gap_ns_per_byte = 0.1});
  const ExecutorResult result =
      run(machine, Collective::all_gather, "direct", ranks, bytes / 4, {.collapse = false});
  ASSERT_GE(result.ports.size(), std::size_t{ranks});
  const double busy_ns = 7 + 0.1 * (bytes - 1);
  EXPECT_NEAR(to_ns(result.finished), 100 + (ranks - 2) * busy_ns + 0.1 * (bytes - 1), 0.1);
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_EQ(result.ports[static_cast<std::size_t>(rank)].bytes_sent, (ranks - 1) * bytes);
}

// The α-β model knows no ports: the same all-gather costs one message.
TEST(ClosedForm, AlphaBetaSharesNothing) {
  const Machine machine =
      log_gops_machine(5, {.latency_ns = 100, .gap_ns = 7, .gap_ns_per_byte = 0.1});
  const ExecutorResult result =
      run(machine, Collective::all_gather, "direct", 5, 1000, {.model = NetworkModel::alpha_beta});
  EXPECT_NEAR(to_ns(result.finished), 100 + 0.1 * 3999, 0.1);
}

// The library's stated costs and the simulation agree where the formula knows all that happens.
TEST(ClosedForm, StatedCostsAgreeWithTheSimulation) {
  for (const auto& [collective, algorithm] :
       {std::pair(Collective::all_reduce, "ring"), std::pair(Collective::all_gather, "ring"),
        std::pair(Collective::reduce_scatter, "ring"),
        std::pair(Collective::all_gather, "recursive_doubling"),
        std::pair(Collective::all_reduce, "recursive_doubling")}) {
    Machine machine = log_gops_machine(16, {.latency_ns = 5000, .gap_ns_per_byte = 0.1});
    machine.reduce_gb_s = 20;
    machine.protocols[0].slot_bytes = 1 << 30;
    const auto placement = place(machine, 16);
    const auto result = simulate_collective(machine, test::entry(collective, algorithm),
                                            test::call_of(collective, *placement, 1 << 16), {});
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_NEAR(to_us(result->run.finished), result->closed_form_us, 0.001 * result->closed_form_us)
        << algorithm;
  }
}

}  // namespace
}  // namespace unisono::simulate
