// The registry finds algorithms by name, helps with mistyped ones, and refuses what they cannot do.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "algorithm/algorithm.h"
#include "plan/walk.h"

namespace unisono::algorithm {
namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

const Entry& ring() { return **find(Collective::all_reduce, "ring"); }

TEST(Registry, NamesAreUniqueAndSayTheCollective) {
  std::set<std::string> names;
  for (const Entry& entry : entries()) {
    EXPECT_TRUE(names.insert(entry.plan_name()).second) << entry.plan_name();
    EXPECT_TRUE(entry.plan_name().ends_with(name(entry.collective)));
    EXPECT_FALSE(entry.summary.empty() || entry.source.empty() || entry.constraint.empty())
        << entry.plan_name();
  }
}

TEST(Registry, EveryEntryIsFoundByBothOfItsNames) {
  for (const Entry& entry : entries()) {
    Result<const Entry*> by_name = find(entry.collective, entry.name);
    ASSERT_TRUE(by_name.ok()) << by_name.error().message;
    EXPECT_EQ((*by_name)->plan_name(), entry.plan_name());
    Result<const Entry*> by_plan = find_plan(entry.plan_name());
    ASSERT_TRUE(by_plan.ok()) << by_plan.error().message;
    EXPECT_EQ(*by_plan, *by_name);
  }
}

TEST(Registry, EveryCollectiveWithAFixedMeaningHasAnAlgorithm) {
  for (int i = 0; i < collective_count; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective == Collective::point_to_point || collective == Collective::custom) continue;
    EXPECT_FALSE(entries_for(collective).empty()) << name(collective);
    for (const Entry* entry : entries_for(collective)) EXPECT_EQ(entry->collective, collective);
  }
}

TEST(Registry, AMistypedNameGetsTheNearOnes) {
  Result<const Entry*> entry = find(Collective::all_reduce, "rinng");
  ASSERT_FALSE(entry.ok());
  EXPECT_EQ(entry.error().kind, ErrorKind::misuse);
  EXPECT_TRUE(contains(entry.error().message, "'rinng'")) << entry.error().message;
  EXPECT_TRUE(contains(entry.error().message, "ring")) << entry.error().message;

  Result<const Entry*> plan = find_plan("tree_all_reduse");
  ASSERT_FALSE(plan.ok());
  EXPECT_TRUE(contains(plan.error().message, "tree_all_reduce")) << plan.error().message;
}

TEST(Registry, RequestsThatCannotBeServedAreMisuseWithTheValues) {
  Request request{.collective = Collective::all_reduce,
                  .placement = topo::Placement::single_node(4)};
  Result<plan::RankProgram> beyond = make_program(ring(), request, 4);
  ASSERT_FALSE(beyond.ok());
  EXPECT_TRUE(contains(beyond.error().message, "rank 4")) << beyond.error().message;
  EXPECT_TRUE(contains(beyond.error().message, "0 to 3")) << beyond.error().message;

  request.channels = 0;
  EXPECT_TRUE(contains(make_header(ring(), request).error().message, "channels is 0"));

  request.channels = 1;
  request.collective = Collective::broadcast;
  EXPECT_TRUE(contains(make_plan(ring(), request).error().message, "cannot run broadcast"));

  request.root = 7;
  const Entry& broadcast = **find(Collective::broadcast, "ring");
  EXPECT_TRUE(contains(make_plan(broadcast, request).error().message, "root 7"));
}

TEST(Registry, ChannelsThatNoPlanHasAreRefusedBeforeAnythingIsWritten) {
  for (const int channels : {-1, 0, 65, 1 << 30}) {
    const Request request{.placement = topo::Placement::single_node(64), .channels = channels};
    const std::clock_t began = std::clock();
    const auto plan = make_plan(ring(), request);
    EXPECT_LT(std::clock() - began, CLOCKS_PER_SEC / 10);
    ASSERT_FALSE(plan.ok());
    EXPECT_TRUE(contains(plan.error().message, "it must be 1 to 64")) << plan.error().message;
    EXPECT_FALSE(check_request(ring(), request).ok());
  }
}

TEST(Registry, AHierarchyRefusesANodeTooLargeForItsChannels) {
  const Entry& entry = **find(Collective::all_reduce, "hierarchical_ring");
  const auto placed = [](std::vector<int> ranks_per_node) {
    return Request{.collective = Collective::all_reduce,
                   .placement = topo::Placement::blocks(ranks_per_node).value(),
                   .channels = 2};
  };
  EXPECT_TRUE(make_header(entry, placed({1, 32, 1})).ok());
  Result<plan::Header> header = make_header(entry, placed({1, 33, 1}));
  ASSERT_FALSE(header.ok());
  EXPECT_TRUE(contains(header.error().message, "33 ranks")) << header.error().message;
}

// What a program of one rank takes must not grow with the communicator, where its steps do not.
TEST(Registry, AProgramOfOneOf100000RanksIsSmallAndMadeAtOnce) {
  const Request request{.collective = Collective::all_reduce,
                        .placement = topo::Placement::uniform(12500, 8)};
  for (int rank : {0, 3, 50000, 99999}) {
    const std::clock_t start = std::clock();
    Result<plan::RankProgram> program = make_program(ring(), request, rank);
    const double cpu_seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    ASSERT_TRUE(program.ok()) << program.error().message;
    ASSERT_EQ(program->thread_blocks.size(), 1U);
    EXPECT_LT(program->thread_blocks[0].body.size(), 10U);
    EXPECT_EQ(plan::unrolled_steps(program->thread_blocks[0].body), 2 * 100000 - 1);
    // Some hundred times what it takes; a program made step by step would take longer.
    EXPECT_LT(cpu_seconds, 0.05);
  }
}

std::size_t nodes_in(const plan::Body& body) {
  std::size_t nodes = 0;
  for (const plan::Node& node : body) {
    ++nodes;
    if (const plan::Loop* loop = std::get_if<plan::Loop>(&node)) nodes += nodes_in(loop->body);
  }
  return nodes;
}

std::size_t dependencies_in(const plan::Body& body) {
  std::size_t count = 0;
  for (const plan::Node& node : body) {
    if (const plan::Loop* loop = std::get_if<plan::Loop>(&node))
      count += dependencies_in(loop->body);
    else
      count += std::get<plan::Step>(node).after.size();
  }
  return count;
}

// Were every thread block to wait for those of all peers, there would be 255 for each of them.
TEST(Registry, ThreadBlocksWaitForAFewOthers) {
  for (const Entry& entry : entries())
    for (const topo::Placement& placement :
         {topo::Placement::single_node(255), topo::Placement::uniform(15, 17)})
      for (bool in_place : {false, true}) {
        const Request request{
            .collective = entry.collective, .placement = placement, .in_place = in_place};
        if (!entry.supports(request).ok()) continue;
        Result<plan::RankProgram> program = make_program(entry, request, 100);
        ASSERT_TRUE(program.ok()) << program.error().message;
        std::size_t dependencies = 0;
        for (const plan::ThreadBlock& block : program->thread_blocks)
          dependencies += dependencies_in(block.body);
        // PAT waits most: each use of an area waits for the one before.
        EXPECT_LE(dependencies, 32 * program->thread_blocks.size()) << entry.plan_name();
      }
}

TEST(Registry, HierarchicalRingsOf2048RanksAreAFewLoops) {
  for (Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    const Entry& entry = **find(collective, "hierarchical_ring");
    const Request request{.collective = collective, .placement = topo::Placement::uniform(256, 8)};
    for (int rank : {0, 5, 1000, 2047}) {
      Result<plan::RankProgram> program = make_program(entry, request, rank);
      ASSERT_TRUE(program.ok()) << program.error().message;
      for (const plan::ThreadBlock& block : program->thread_blocks)
        EXPECT_LT(nodes_in(block.body), 20U) << entry.plan_name() << ", rank " << rank;
    }
  }
}

TEST(Registry, HeadersCoverTheLargestStepOfAnyRank) {
  for (const Entry& entry : entries())
    for (int nodes : {1, 3, 4})
      for (int ranks : {1, 3}) {
        const Request request{.collective = entry.collective,
                              .placement = topo::Placement::uniform(nodes, ranks)};
        Result<plan::Plan> plan = make_plan(entry, request);
        if (!plan.ok()) continue;
        int most = 1;
        for (const plan::RankProgram& program : plan->programs)
          most = std::max(most, plan::max_step_count(program));
        EXPECT_GE(plan->header.max_step_count, most)
            << entry.plan_name() << ", " << nodes << " nodes of " << ranks;
        EXPECT_LE(plan->header.max_step_count, 2 * most)
            << entry.plan_name() << ", " << nodes << " nodes of " << ranks;
      }
}

}  // namespace
}  // namespace unisono::algorithm
