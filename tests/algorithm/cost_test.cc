// What each algorithm says that it costs is what its plans cost.
#include <gtest/gtest.h>

#include "algorithm/algorithm.h"
#include "algorithm/every_entry.h"
#include "algorithm/measure.h"
#include "algorithm/placements.h"
#include "base/str.h"

namespace unisono::algorithm {
namespace {

std::vector<int> ranks_to_try() {
  if (is_sanitized) return {1, 2, 3, 5, 8, 9};
  std::vector<int> ranks;
  for (int p = 1; p <= 17; ++p) ranks.push_back(p);
  ranks.push_back(32);
  ranks.push_back(33);
  return ranks;
}

void expect_cost_holds(const Entry& entry, const Request& request, const std::string& where) {
  SCOPED_TRACE(str(entry.plan_name(), " of ", request.placement.ranks(), " ranks, ", where, ", ",
                   request.channels, " channels, root ", request.root,
                   request.in_place ? ", in place" : ", out of place"));
  Result<plan::Plan> plan = make_plan(entry, request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  // Chunks of 64 bytes each.
  const double block_bytes = 64.0 * plan->header.chunks_per_block;
  const Cost measured = measure(*plan, request.placement, block_bytes);
  const Cost stated = entry.cost(request, block_bytes);
  if (!stated.exact) {
    EXPECT_GE(stated.steps, measured.steps);
    EXPECT_GE(stated.steps_inter_node, measured.steps_inter_node);
    EXPECT_GE(stated.bytes_sent, measured.bytes_sent);
    EXPECT_GE(stated.bytes_sent_inter_node, measured.bytes_sent_inter_node);
    EXPECT_GE(stated.bytes_reduced, measured.bytes_reduced);
    return;
  }
  EXPECT_EQ(stated.steps, measured.steps);
  EXPECT_DOUBLE_EQ(stated.bytes_sent, measured.bytes_sent);
  EXPECT_DOUBLE_EQ(stated.bytes_sent_inter_node, measured.bytes_sent_inter_node);
  EXPECT_DOUBLE_EQ(stated.bytes_reduced, measured.bytes_reduced);
  if (!request.in_place) {
    EXPECT_LE(stated.bytes_copied, measured.bytes_copied);
    EXPECT_GE(stated.bytes_copied + block_bytes, measured.bytes_copied);
  }
  if (request.channels == 1) {
    EXPECT_LE(stated.messages_of_all, measured.messages_of_all);
    EXPECT_GE(2 * stated.messages_of_all, measured.messages_of_all);
    EXPECT_LE(stated.messages_of_all_inter_node, measured.messages_of_all_inter_node);
    EXPECT_GE(2 * stated.messages_of_all_inter_node, measured.messages_of_all_inter_node);
  }
  // Channels multiply messages, which the cost of a call on one channel does not tell.
  if (request.channels == 1 && request.placement.nodes() == 1) {
    EXPECT_LE(stated.messages, std::max(stated.steps, measured.messages));
  }
  // Stated as a bound, which no chain may break.
  EXPECT_GE(stated.steps_inter_node, measured.steps_inter_node);
  EXPECT_LE(stated.steps_inter_node, stated.steps);
  if (request.placement.nodes() == 1) {
    EXPECT_EQ(stated.steps_inter_node, 0);
  }
  if (request.placement.nodes() == request.placement.ranks()) {
    EXPECT_EQ(stated.steps_inter_node, stated.steps);
  }
}

class CostOf : public testing::TestWithParam<const Entry*> {};

TEST_P(CostOf, IsWhatThePlanDoes) {
  const Entry& entry = *GetParam();
  for (int ranks : ranks_to_try())
    for (const NamedPlacement& where : placements_of(ranks))
      for (const Variant& variant : variants_for(ranks)) {
        const Request request{.collective = entry.collective,
                              .placement = where.placement,
                              .root = has_root(entry.collective) ? ranks / 2 : 0,
                              .in_place = variant.in_place,
                              .channels = variant.channels};
        if (!entry.supports(request).ok()) continue;
        expect_cost_holds(entry, request, where.name);
        if (testing::Test::HasFailure()) return;
      }
}

// Racks of two nodes, zones of two racks; where nodes are named in another order, too.
std::vector<NamedPlacement> placements_in_levels() {
  std::vector<NamedPlacement> out;
  const std::vector<topo::Levels::Span> spans{{"rack", 2, 10'000}, {"zone", 4, 70'000}};
  for (const int nodes : {2, 3, 4, 7, 8, 16})
    for (const int ranks : {1, 2, 3}) {
      const auto placement = topo::Placement::uniform(nodes, ranks);
      const auto levels = topo::Levels::of_spans(nodes, spans);
      out.push_back({str(nodes, " nodes of ", ranks), placement.with(*levels).value()});
    }
  const std::vector<int> shape{1, 3, 2, 2, 1};
  out.push_back({"unequal nodes", topo::Placement::blocks(shape)
                                      .value()
                                      .with(topo::Levels::of_spans(5, spans).value())
                                      .value()});
  std::vector<topo::Location> apart;
  for (int node = 0; node < 8; ++node)
    apart.push_back({{"rack", str(node % 3), 10'000}, {"zone", str(node % 2), 70'000}});
  out.push_back(
      {"units apart",
       topo::Placement::uniform(8, 2).with(topo::Levels::of_nodes(apart).value()).value()});
  return out;
}

// Whatever the plan, no chain of its messages takes longer by the levels than its cost says.
TEST_P(CostOf, BoundsWhatLevelsAdd) {
  const Entry& entry = *GetParam();
  for (const NamedPlacement& where : placements_in_levels())
    for (const int channels : {1, 2}) {
      const Request request{.collective = entry.collective,
                            .placement = where.placement,
                            .root = has_root(entry.collective) ? where.placement.ranks() / 2 : 0,
                            .channels = channels};
      if (!entry.supports(request).ok()) continue;
      const Result<plan::Plan> plan = make_plan(entry, request);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      const Cost cost = entry.cost(request, 64.0 * plan->header.chunks_per_block);
      EXPECT_GE(longer_us(cost, where.placement.levels()) + 1e-6,
                measured_longer_us(*plan, where.placement))
          << entry.plan_name() << ", " << where.name << ", " << channels << " channels";
    }
}

double longer_us_of(const char* plan_name, const Request& request) {
  return longer_us((*find_plan(plan_name))->cost(request, 1024), request.placement.levels());
}

// 16 nodes, two racks of 8: halving leaves the rack once each way, a ring of nodes at two edges of
// each round.
TEST(LevelCost, IsExactWhereTheDistanceDecides) {
  const std::vector<topo::Levels::Span> spans{{"rack", 8, 10'000}};
  Request request{
      .collective = Collective::all_reduce,
      .placement =
          topo::Placement::uniform(16, 2).with(topo::Levels::of_spans(16, spans).value()).value()};
  for (const char* name : {"hierarchical_recursive_all_reduce", "hierarchical_ring_all_reduce"}) {
    const Result<plan::Plan> plan = make_plan(**find_plan(name), request);
    ASSERT_TRUE(plan.ok());
    EXPECT_DOUBLE_EQ(longer_us_of(name, request), measured_longer_us(*plan, request.placement))
        << name;
  }
  EXPECT_DOUBLE_EQ(longer_us_of("hierarchical_recursive_all_reduce", request), 2 * 10.0);
  EXPECT_DOUBLE_EQ(longer_us_of("hierarchical_ring_all_reduce", request), 4 * 10.0);
  request.collective = Collective::all_gather;
  EXPECT_DOUBLE_EQ(longer_us_of("hierarchical_recursive_all_gather", request), 10.0);
}

TEST(LevelCost, IsNothingWithoutTimes) {
  const std::vector<topo::Levels::Span> spans{{"rack", 2, 0}};
  const Request request{
      .collective = Collective::all_reduce,
      .placement =
          topo::Placement::uniform(4, 2).with(topo::Levels::of_spans(4, spans).value()).value()};
  for (const Entry* entry : entries_for(Collective::all_reduce)) {
    if (!entry->supports(request).ok()) continue;
    EXPECT_EQ(longer_us(entry->cost(request, 1024), request.placement.levels()), 0);
  }
}

// Down a chain of 16 the last rank of a call alone waits for 14 copies of a first tile, which no
// rank sends.
TEST(ChainCost, CountsHalfTheTilesThatFillTheChain) {
  Request request{.collective = Collective::broadcast,
                  .placement = topo::Placement::single_node(16)};
  const Entry& ring = *find(Collective::broadcast, "ring").value();
  EXPECT_EQ(ring.cost(request, 1000).bytes_filling, 7 * 1000.0);
  EXPECT_EQ(ring.cost(request, 64 << 10).bytes_filling, 7 * Cost::least_tile_bytes);
  EXPECT_EQ(ring.cost(request, 1 << 20).bytes_filling, 7 * Cost::least_tile_bytes_inter_node);
  const Entry& tree = *find(Collective::broadcast, "binomial").value();
  EXPECT_EQ(tree.cost(request, 1 << 20).bytes_filling, 0);
  request.placement = topo::Placement::uniform(4, 4);
  EXPECT_EQ(ring.cost(request, 64 << 10).bytes_filling, 7 * Cost::least_tile_bytes_inter_node);
}

INSTANTIATE_TEST_SUITE_P(Every, CostOf, testing::ValuesIn(every_entry()), name_of_entry);

}  // namespace
}  // namespace unisono::algorithm
