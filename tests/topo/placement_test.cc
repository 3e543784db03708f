#include "topo/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

namespace unisono::topo {
namespace {

std::string error_of(std::vector<int> node_of_rank) {
  const auto placement = Placement::from_nodes(node_of_rank);
  if (placement.ok()) return "no error";
  EXPECT_EQ(placement.error().kind, ErrorKind::misuse);
  return placement.error().message;
}

TEST(Placement, UniformFillsNodeAfterNode) {
  const Placement placement = Placement::uniform(3, 2);
  EXPECT_EQ(placement.ranks(), 6);
  EXPECT_EQ(placement.nodes(), 3);
  EXPECT_EQ(placement.node_of(3), 1);
  EXPECT_EQ(placement.local_index(3), 1);
  EXPECT_EQ(placement.rank_at(2, 1), 5);
  EXPECT_TRUE(placement.same_node(4, 5));
  EXPECT_FALSE(placement.same_node(3, 4));
  EXPECT_TRUE(placement.is_uniform());
  EXPECT_EQ(Placement::single_node(5).nodes(), 1);
}

TEST(Placement, NodesMayHoldUnequalRanksInAnyOrder) {
  const auto placement = Placement::from_nodes(std::vector<int>{1, 0, 1, 2, 1});
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(placement->ranks_on(1), 3);
  EXPECT_EQ(placement->local_index(4), 2);
  EXPECT_EQ(placement->rank_at(1, 0), 0);
  EXPECT_EQ(placement->rank_at(1, 1), 2);
  EXPECT_FALSE(placement->is_uniform());
  EXPECT_EQ(placement->max_ranks_on_a_node(), 3);
}

TEST(Placement, BlocksHoldConsecutiveRanks) {
  const std::vector<int> shape{2, 1, 3};
  const auto placement = Placement::blocks(shape);
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(placement->ranks(), 6);
  EXPECT_EQ(placement->rank_at(2, 0), 3);
  const std::vector<int> with_empty{2, 0};
  EXPECT_EQ(Placement::blocks(with_empty).error().message,
            "node 1 has 0 ranks; every node needs at least 1");
  EXPECT_FALSE(Placement::blocks(std::vector<int>{}).ok());
}

TEST(Placement, AHundredThousandNodesOfOneRankEach) {
  constexpr int ranks = 100'000;
  std::vector<int> node_of_rank(ranks);
  std::iota(node_of_rank.begin(), node_of_rank.end(), 0);
  const auto placement = Placement::from_nodes(node_of_rank);
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(placement->nodes(), ranks);
  EXPECT_EQ(placement->node_of(ranks - 1), ranks - 1);
}

TEST(Placement, RefusesNodesThatAreMissingOrOutOfRange) {
  EXPECT_EQ(error_of({}), "a placement needs at least 1 rank");
  EXPECT_EQ(error_of({0, -1}), "rank 1 is on node -1; nodes are numbered from 0");
  EXPECT_EQ(error_of({-1}), "rank 0 is on node -1; nodes are numbered from 0");
  EXPECT_EQ(error_of({0, 0, 2}), "node 1 of 3 has no rank");
  EXPECT_EQ(error_of({0, 2}), "node number 2 is out of range: 2 ranks fill at most nodes 0 to 1");
  EXPECT_EQ(error_of({2147483647}),
            "node number 2147483647 is out of range: 1 ranks fill at most nodes 0 to 0");
}

TEST(Placement, RankAndItsPlaceAreInverse) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const int nodes = 1 + static_cast<int>(random() % 6);
    std::vector<int> node_of;
    for (int node = 0; node < nodes; ++node) node_of.push_back(node);
    for (unsigned more = random() % 12; more > 0; --more)
      node_of.push_back(static_cast<int>(random() % static_cast<unsigned>(nodes)));
    std::shuffle(node_of.begin(), node_of.end(), random);
    const auto placement = Placement::from_nodes(node_of);
    ASSERT_TRUE(placement.ok());
    int most = 0;
    for (int rank = 0; rank < placement->ranks(); ++rank) {
      const int node = placement->node_of(rank);
      ASSERT_EQ(node, node_of[static_cast<std::size_t>(rank)]);
      ASSERT_EQ(placement->rank_at(node, placement->local_index(rank)), rank);
      most = std::max(most, placement->ranks_on(node));
    }
    for (int node = 0; node < nodes; ++node)
      for (int i = 1; i < placement->ranks_on(node); ++i)
        ASSERT_LT(placement->rank_at(node, i - 1), placement->rank_at(node, i));
    ASSERT_EQ(placement->max_ranks_on_a_node(), most);
  }
}

}  // namespace
}  // namespace unisono::topo
