// PAT's trees, messages and scratch.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "algorithm/algorithms.h"
#include "algorithm/messages.h"
#include "algorithm/parts/pat.h"
#include "algorithm/parts/powers.h"

namespace unisono::algorithm {
namespace {

std::vector<std::pair<int, int>> hops_of(int size, int aggregation) {
  std::vector<std::pair<int, int>> hops;
  const PatTrees trees(size, aggregation);
  for (const PatHop& hop : trees.hops()) hops.emplace_back(hop.from, hop.to);
  return hops;
}

using Hops = std::vector<std::pair<int, int>>;

TEST(PatTrees, GoFarFirstAndDepthFirst) {
  EXPECT_EQ(hops_of(8, 1), (Hops{{0, 4}, {4, 6}, {6, 7}, {4, 5}, {0, 2}, {2, 3}, {0, 1}}));
  EXPECT_EQ(hops_of(5, 1), (Hops{{0, 4}, {0, 2}, {2, 3}, {0, 1}}));
  EXPECT_TRUE(hops_of(1, 1).empty());
}

TEST(PatTrees, LanesShareTheHopsBelowTheirDistance) {
  const PatTrees trees(16, 4);
  EXPECT_EQ(trees.lanes(), (std::vector<int>{0, 8, 4, 12}));
  EXPECT_EQ(hops_of(16, 4), (Hops{{0, 2}, {2, 3}, {0, 1}}));
  // Of 15 ranks none is 3 further than 12.
  EXPECT_EQ(PatTrees(15, 4).lanes_with(3), (std::vector<int>{0, 1, 2}));
}

TEST(PatTrees, EveryOffsetIsReachedOnceFromOneThatWas) {
  for (int size = 1; size <= 130; ++size)
    for (int aggregation : {1, 2, 8, 64}) {
      const PatTrees trees(size, aggregation);
      std::set<int> reached{0};
      for (std::size_t i = 1; i < trees.lanes().size(); ++i)
        EXPECT_TRUE(reached.insert(trees.lanes()[i]).second);
      for (const PatHop& hop : trees.hops())
        for (int position : trees.lanes_with(hop.to)) {
          const int lane = trees.lanes()[static_cast<std::size_t>(position)];
          EXPECT_TRUE(reached.contains(hop.from + lane)) << size << ", " << aggregation;
          EXPECT_TRUE(reached.insert(hop.to + lane).second) << size << ", " << aggregation;
        }
      EXPECT_EQ(static_cast<int>(reached.size()), size) << aggregation;
    }
}

TEST(Pat, SendsOneMessageForEveryBlockWithoutAggregation) {
  for (int ranks : {2, 5, 16, 33})
    for (const Entry* entry : {&pat_all_gather, &pat_reduce_scatter})
      EXPECT_EQ(messages_of(*entry, ranks, ranks / 2).size(), static_cast<std::size_t>(ranks - 1));
}

TEST(Pat, SendsALogarithmicNumberOfMessagesWhenAllFit) {
  EXPECT_EQ(messages_of(pat8_all_gather, 16, 3), (Messages{{11, 1}, {7, 2}, {5, 4}, {4, 8}}));
  // The same backwards: near first, with the large messages.
  EXPECT_EQ(messages_of(pat8_reduce_scatter, 16, 3), (Messages{{2, 8}, {1, 4}, {15, 2}, {11, 1}}));
}

TEST(Pat, SendsEightBlocksInAMessageOnceTheTopIsDone) {
  // log2 8 messages to spread, and 64 / 8 - 1 of eight blocks.
  const Messages messages = messages_of(pat8_all_gather, 64, 0);
  EXPECT_EQ(messages.size(), 3U + 7U);
  EXPECT_EQ(std::ranges::count(messages, 8, &Sent::chunks), 7);
}

TEST(Pat, SendsFewBlocksFarAndManyNear) {
  int far = 0;
  int near = 0;
  for (const Sent& sent : messages_of(pat_all_gather, 64, 0)) {
    if (sent.peer == 32) far += sent.chunks;
    if (sent.peer == 1) near += sent.chunks;
  }
  EXPECT_EQ(far, 1);
  EXPECT_EQ(near, 32);
}

TEST(Pat, TakesALogarithmicNumberOfScratchBlocks) {
  for (int ranks = 2; ranks <= 300; ++ranks) {
    const int bits = ceil_log2(ranks);
    EXPECT_EQ(program_of(pat_all_gather, ranks, 0).scratch_blocks, 0);
    EXPECT_EQ(program_of(pat_reduce_scatter, ranks, ranks - 1).scratch_blocks, bits - 1);
    for (const Entry* entry : {&pat8_all_gather, &pat8_reduce_scatter}) {
      const int areas = std::max(bits - 3, 1) + 1;
      EXPECT_LE(program_of(*entry, ranks, ranks / 3).scratch_blocks, 8 * areas) << ranks;
    }
  }
}

}  // namespace
}  // namespace unisono::algorithm
