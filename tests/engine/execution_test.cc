#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/str.h"
#include "support/engine_cluster.h"
#include "support/sanitized.h"

namespace unisono {
namespace {

using test::EngineCluster;
using test::Problem;

// Slots so small that a few hundred elements make many tiles and go by zero-copy.
transport::FifoOptions small_slots() {
  transport::FifoOptions options;
  options.slots = 2;  // what every algorithm is proved for
  options.simple_slot_bytes = 4096;
  options.ll_slot_bytes = 4096;
  options.ll128_slot_bytes = 4096;
  options.zero_copy = true;
  options.zero_copy_min_bytes = 1024;
  return options;
}

std::vector<std::vector<std::int64_t>> random_counts(int ranks, std::int64_t most,
                                                     std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<std::int64_t>> counts;
  for (int i = 0; i < ranks; ++i) {
    counts.emplace_back();
    for (int j = 0; j < ranks; ++j)
      counts.back().push_back(
          random() % 4 == 0
              ? 0
              : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most + 1)));
  }
  return counts;
}

std::string run(EngineCluster& cluster, const algorithm::Entry& entry,
                const topo::Placement& placement, Protocol protocol, bool in_place, int root,
                std::int64_t count, DataType type, ReduceOperation operation, int calls = 1) {
  static std::uint64_t seed = 1;
  algorithm::Request request;
  request.collective = entry.collective;
  request.placement = placement;
  request.root = has_root(entry.collective) ? root : 0;
  request.in_place = in_place;
  request.protocol = protocol;
  if (!entry.supports(request).ok()) return {};
  Problem problem{entry.collective, placement.ranks(), request.root, count, operation, {}};
  if (entry.collective == Collective::all_to_all_v)
    problem.counts = random_counts(placement.ranks(), count, ++seed);
  if (entry.collective == Collective::barrier) problem.count = 1, type = DataType::uint8;
  return cluster.run({&entry, request, problem, type, ++seed, calls});
}

std::vector<topo::Placement> placements(int ranks) {
  std::vector<topo::Placement> out{topo::Placement::single_node(ranks)};
  if (ranks % 2 == 0) out.push_back(topo::Placement::uniform(2, ranks / 2));
  if (ranks >= 3) {
    auto uneven = topo::Placement::blocks(std::vector<int>{1, ranks - 1});
    out.push_back(std::move(uneven).value());
  }
  return out;
}

std::vector<int> rank_counts() {
  if (test::is_sanitized) return {2, 5};
  return {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16};
}
std::vector<int> large_rank_counts() {
  if (test::is_sanitized) return {3};
  return {2, 5, 8};
}

class EveryAlgorithm : public testing::TestWithParam<Protocol> {};

// Every algorithm has more cases here than there are pairs of a type and an operation: each comes
// with all of them, another one in every case.
TEST_P(EveryAlgorithm, DeliversOnEveryShapeInAndOutOfPlaceWithOddCounts) {
  std::map<const algorithm::Entry*, int> cases;
  for (int ranks : rank_counts()) {
    EngineCluster cluster(ranks, small_slots());
    for (const algorithm::Entry& entry : algorithm::entries())
      for (const topo::Placement& placement : placements(ranks))
        for (bool in_place : {false, true})
          for (std::int64_t count : {0, 1, ranks - 1, ranks + 1, 1009}) {
            const int root = ranks / 2;
            // 13 has no divisor in common with the 84 pairs.
            const int pair = cases[&entry]++ * 13 % (data_type_count * reduce_operation_count);
            const auto type = static_cast<DataType>(pair % data_type_count);
            const auto operation = static_cast<ReduceOperation>(pair / data_type_count);
            const std::string wrong =
                run(cluster, entry, placement, GetParam(), in_place, root, count, type, operation);
            ASSERT_EQ(wrong, "") << entry.plan_name() << ", " << ranks << " ranks, "
                                 << placement.nodes() << " nodes, in place " << in_place
                                 << ", count " << count << ", " << name(type) << " "
                                 << name(operation);
          }
  }
}

// From the second call of a shape on, its steps are placed; another shape must undo that.
TEST_P(EveryAlgorithm, DeliversCallAfterCallOfOneShapeAndThenOfAnother) {
  for (int ranks : large_rank_counts()) {
    EngineCluster cluster(ranks, small_slots());
    for (const algorithm::Entry& entry : algorithm::entries())
      for (const topo::Placement& placement : placements(ranks))
        for (bool in_place : {false, true})
          for (std::int64_t count : {1, ranks + 1, 61})
            ASSERT_EQ(run(cluster, entry, placement, GetParam(), in_place, ranks / 2, count,
                          DataType::int32, ReduceOperation::sum, 5),
                      "")
                << entry.plan_name() << ", " << ranks << " ranks, " << placement.nodes()
                << " nodes, in place " << in_place << ", count " << count;
  }
}

TEST_P(EveryAlgorithm, DeliversManyTilesAndZeroCopyOffers) {
  for (int ranks : large_rank_counts()) {
    EngineCluster cluster(ranks, small_slots());
    for (const algorithm::Entry& entry : algorithm::entries())
      for (bool in_place : {false, true})
        ASSERT_EQ(run(cluster, entry, topo::Placement::single_node(ranks), GetParam(), in_place,
                      ranks - 1, 20011, DataType::int64, ReduceOperation::sum),
                  "")
            << entry.plan_name() << ", " << ranks << " ranks, in place " << in_place;
  }
}

// Calls of one shape and of others follow each other: addresses are of one call alone.
TEST_P(EveryAlgorithm, DeliversMessagesThatGoDirectlyToTheirDestination) {
  for (int ranks : {3, 4}) {
    if (test::is_sanitized && ranks == 4) continue;
    EngineCluster cluster(ranks, small_slots(), EngineCluster::Memory::put_in_place);
    for (const algorithm::Entry& entry : algorithm::entries())
      for (const topo::Placement& placement : placements(ranks))
        for (bool in_place : {false, true})
          for (const auto operation :
               {ReduceOperation::average, ReduceOperation::pre_multiplied_sum})
            ASSERT_EQ(run(cluster, entry, placement, GetParam(), in_place, ranks / 2, 2003,
                          DataType::float64, operation, 3),
                      "")
                << entry.plan_name() << ", " << ranks << " ranks, " << placement.nodes()
                << " nodes, in place " << in_place;
  }
}

TEST_P(EveryAlgorithm, DeliversWhereSlotsAreUsedAgain) {
  transport::FifoOptions options = small_slots();
  options.reuses_slots = true;
  for (const bool zero_copy : {false, true}) {
    options.zero_copy = zero_copy;
    EngineCluster cluster(4, options);
    for (const algorithm::Entry& entry : algorithm::entries())
      for (std::int64_t count : {3, 700, 5003})
        ASSERT_EQ(run(cluster, entry, topo::Placement::single_node(4), GetParam(), false, 1, count,
                      DataType::int64, ReduceOperation::sum, 4),
                  "")
            << entry.plan_name() << ", count " << count << ", zero-copy " << zero_copy;
  }
}

INSTANTIATE_TEST_SUITE_P(Protocols, EveryAlgorithm,
                         testing::Values(Protocol::simple, Protocol::ll, Protocol::ll128),
                         [](const auto& tested) { return std::string(name(tested.param)); });

TEST(EveryReduction, IsExactInEveryTypeAndOperation) {
  constexpr int ranks = 5;
  EngineCluster cluster(ranks, small_slots());
  for (const algorithm::Entry& entry : algorithm::entries()) {
    if (!is_reduction(entry.collective)) continue;
    for (int type = 0; type < data_type_count; ++type)
      for (int operation = 0; operation < reduce_operation_count; ++operation)
        for (bool in_place : {false, true})
          ASSERT_EQ(
              run(cluster, entry, topo::Placement::single_node(ranks), Protocol::simple, in_place,
                  2, 257, static_cast<DataType>(type), static_cast<ReduceOperation>(operation)),
              "")
              << entry.plan_name() << " " << name(static_cast<DataType>(type)) << " "
              << name(static_cast<ReduceOperation>(operation)) << " in place " << in_place;
  }
}

// To be connected: with all others in one shot, and with the next neighbour in a ring.
TEST(Execution, SaysWhichRanksItAwaits) {
  constexpr int rank = 2;
  std::set<int> awaited{0, 1, 3};
  for (const char* algorithm : {"one_shot", "ring"}) {
    EngineCluster cluster(4, small_slots());
    algorithm::Request request;
    request.placement = topo::Placement::single_node(4);
    const algorithm::Entry& entry = **algorithm::find(Collective::all_reduce, algorithm);
    const plan::Plan plan = std::move(algorithm::make_plan(entry, request)).value();
    if (algorithm == std::string("ring"))
      awaited = {plan.programs[rank].thread_blocks.front().send_peer};
    std::vector<std::int32_t> input(64), output(64);
    const engine::Arguments arguments{
        .input = input.data(), .output = output.data(), .count = 64, .type = DataType::int32};
    EXPECT_EQ(cluster.awaited_alone(plan, rank, arguments), awaited) << algorithm;
  }
}

// Once connected, in a ring: for a message, which an event tells only where memory is not mapped.
TEST(Execution, SaysWhetherAnEventEndsItsWait) {
  for (const auto memory : {EngineCluster::Memory::mapped, EngineCluster::Memory::put_only})
    for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128}) {
      EngineCluster cluster(4, small_slots(), memory);
      algorithm::Request request;
      request.placement = topo::Placement::single_node(4);
      request.protocol = protocol;
      const algorithm::Entry& entry = **algorithm::find(Collective::all_reduce, "ring");
      const plan::Plan plan = std::move(algorithm::make_plan(entry, request)).value();
      const Problem problem{Collective::all_reduce, 4, 0, 64, ReduceOperation::sum, {}};
      ASSERT_EQ(cluster.run({.entry = &entry, .request = request, .problem = problem}), "");
      std::vector<std::int32_t> input(64), output(64);
      const engine::Arguments arguments{
          .input = input.data(), .output = output.data(), .count = 64, .type = DataType::int32};
      EXPECT_EQ(cluster.waiting_alone(plan, 2, arguments).kind, engine::Waiting::Kind::message);
      EXPECT_EQ(cluster.awaits_event_alone(plan, 2, arguments),
                memory == EngineCluster::Memory::put_only)
          << name(protocol);
    }
}

TEST(Execution, RefusesAPlanWhoseStepsDoNotFitASlot) {
  transport::FifoOptions options = small_slots();
  EngineCluster cluster(8, options);
  plan::Header header;
  header.name = "wide";
  header.collective = Collective::all_gather;
  header.ranks = 8;
  plan::set_blocks(header);
  header.max_step_count = 4096;
  plan::RankProgram program;
  struct NoResources : engine::Resources {
    Result<transport::SendFifo*> send_fifo(int, int, Protocol) override { return nullptr; }
    Result<transport::RecvFifo*> recv_fifo(int, int, Protocol) override { return nullptr; }
    Status progress() override { return {}; }
    Result<void*> scratch(std::size_t) override { return nullptr; }
  } resources;
  const auto made = engine::make_execution(header, program, resources, options);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind, ErrorKind::misuse);
  EXPECT_NE(made.error().message.find("32768 bytes of a slot"), std::string::npos)
      << made.error().message;
}

}  // namespace
}  // namespace unisono
