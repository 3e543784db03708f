// From UNISONO_LEVELS of each rank to what the communicator knows and chooses.

#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/str.h"
#include "comm/select/selection.h"
#include "support/ranks.h"

namespace unisono {
namespace {

// Nodes of one rank each, in racks that take turns: 0 and 2 are in one, 1 and 3 in the other.
std::string in_turns(int rank) { return str("rack=r", rank % 2, "+40us,zone=z0+90us"); }

TEST(LevelsOfAJob, AreTheSameOnAllRanks) {
  std::mutex mutex;
  std::set<std::string> texts;
  std::vector<int> nodes(4);
  test::run_ranks({.ranks = 4, .nodes = 4, .levels = in_turns}, [&](Communicator& world) {
    const auto found = world.explain(Collective::all_reduce, 1 << 20);
    ASSERT_TRUE(found.ok()) << found.error().describe();
    EXPECT_EQ(found->levels, "2 racks (+40 us), 1 zone (+90 us)");
    const test::Problem problem{.collective = Collective::all_reduce, .ranks = 4, .count = 1000};
    EXPECT_EQ(test::run_checked(world, {.problem = problem}), "");
    const std::lock_guard lock(mutex);
    texts.insert(found->text());
    nodes[static_cast<std::size_t>(world.rank())] = world.node_of(world.rank());
  });
  EXPECT_EQ(texts.size(), 1U);
  // A rack's nodes are numbered one after another.
  EXPECT_EQ(nodes, (std::vector<int>{0, 2, 1, 3}));
}

TEST(LevelsOfAJob, AreTheGroupsOwnAfterASplit) {
  test::run_ranks({.ranks = 4, .nodes = 4, .levels = in_turns}, [](Communicator& world) {
    auto rack = world.split(world.rank() % 2, world.rank());
    ASSERT_TRUE(rack.ok()) << rack.error().describe();
    const auto found = rack->explain(Collective::all_reduce, 8);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->levels, "1 rack (+40 us), 1 zone (+90 us)");
    ASSERT_EQ(found->distances.size(), 4U);
    EXPECT_GT(found->distances[1].messages, 0);
    EXPECT_EQ(found->distances[2].messages + found->distances[3].messages, 0);
  });
}

TEST(LevelsOfAJob, AreNotThereWhereNobodySetsThem) {
  test::run_ranks({.ranks = 2, .nodes = 2}, [](Communicator& world) {
    const auto found = world.explain(Collective::all_reduce, 8);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->levels, "");
    EXPECT_TRUE(found->distances.empty());
    EXPECT_EQ(found->text().find("longer"), std::string::npos);
  });
}

std::vector<std::string> errors_of(const std::array<std::string, 3>& levels) {
  const test::Rendezvous rendezvous;
  std::vector<std::string> errors(levels.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < levels.size(); ++rank)
    threads.emplace_back([&, rank] {
      InitOptions init;
      init.rank = static_cast<int>(rank);
      init.world_size = static_cast<int>(levels.size());
      init.rendezvous = rendezvous.url();
      init.node = str("node", rank);
      init.settings = {{"UNISONO_LEVELS", levels[rank]}};
      const auto world = Communicator::init(init);
      errors[rank] = world.ok() ? "no error" : world.error().describe();
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(LevelsOfAJob, OfUnlikeDepthEndTheMeetingForAllAndNameBothRanks) {
  for (const std::string& error : errors_of({"rack=a,zone=z", "rack=b,zone=z", "rack=c"})) {
    EXPECT_NE(error.find("'rack=a,zone=z' on rank 0"), std::string::npos) << error;
    EXPECT_NE(error.find("'rack=c' on rank 2"), std::string::npos) << error;
    EXPECT_NE(error.find("must name the same levels"), std::string::npos) << error;
  }
}

TEST(LevelsOfAJob, ThatOneRankCannotReadNameThatRank) {
  const auto errors = errors_of({"rack=a", "rack=", "rack=c"});
  for (const std::string& error : errors)
    EXPECT_NE(error.find("UNISONO_LEVELS is 'rack='"), std::string::npos) << error;
  EXPECT_NE(errors[0].find("rank 1"), std::string::npos) << errors[0];
}

comm::Selection selection_of(const topo::Placement& placement) {
  return comm::Selection(placement, comm::host_model(transport::FifoOptions{}));
}

topo::Placement racks(int nodes, int ranks, int nodes_per_rack, std::int64_t leaving_ns) {
  const std::vector<topo::Levels::Span> spans{{"rack", nodes_per_rack, leaving_ns}};
  return topo::Placement::uniform(nodes, ranks)
      .with(topo::Levels::of_spans(nodes, spans).value())
      .value();
}

TEST(LevelsInSelection, ChangeNothingWithoutTimes) {
  for (const int nodes : {2, 4, 8})
    for (const int ranks : {1, 4})
      for (const Collective collective :
           {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
        auto plain = selection_of(topo::Placement::uniform(nodes, ranks));
        auto levelled = selection_of(racks(nodes, ranks, 2, 0));
        const auto& before = plain.rows(collective);
        const auto& after = levelled.rows(collective);
        ASSERT_EQ(before.size(), after.size());
        for (std::size_t i = 0; i < before.size(); ++i) {
          EXPECT_TRUE(before[i].choice.is_same_plan(after[i].choice));
          EXPECT_EQ(before[i].max_bytes, after[i].max_bytes);
        }
      }
}

// Wherever time between racks is all that counts, the plan crosses them as rarely as any.
TEST(LevelsInSelection, PlansLeaveFarUnitsSeldom) {
  const topo::Placement far = racks(16, 2, 8, 10'000'000);
  for (const Collective collective :
       {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
    auto selection = selection_of(far);
    const auto found = selection.explain(collective, 1 << 16);
    ASSERT_TRUE(found.ok());
    for (const PlanCandidate& one : found->candidates)
      EXPECT_LE(found->candidates.front().longer_us, one.longer_us) << one.algorithm;
  }
}

TEST(LevelsInSelection, ExplainCountsEveryMessageOfThePlan) {
  const topo::Placement placement = racks(4, 2, 2, 5'000);
  auto selection = selection_of(placement);
  const auto found = selection.explain(Collective::all_gather, 8 << 10,
                                       {.options = {.algorithm = "hierarchical_ring"}});
  ASSERT_TRUE(found.ok()) << found.error().describe();
  ASSERT_EQ(found->distances.size(), 3U);
  EXPECT_EQ(found->distances[0].where, "inside a node");
  EXPECT_EQ(found->distances[1].where, "inside a rack");
  EXPECT_EQ(found->distances[2].where, "between racks");
  // Two lanes of four nodes, three rounds: of a ring's four edges two leave a rack.
  EXPECT_EQ(found->distances[1].messages, 2 * 3 * 2);
  EXPECT_EQ(found->distances[2].messages, 2 * 3 * 2);
  EXPECT_DOUBLE_EQ(found->distances[2].bytes, 2 * 3 * 2 * 1024.0);
  // Each node's pair exchanges the blocks of its lanes.
  EXPECT_EQ(found->distances[0].messages, 8 * 4);
  EXPECT_DOUBLE_EQ(found->distances[2].longer_us, 5);
  const std::string text = found->text();
  for (const char* part : {"levels: 2 racks (+5 us)", "between racks", "far us"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace unisono
