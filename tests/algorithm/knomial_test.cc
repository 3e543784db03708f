// K-nomial trees, and what broadcast, reduce, gather and scatter do over them.
#include <gtest/gtest.h>

#include "algorithm/algorithms.h"
#include "algorithm/messages.h"
#include "algorithm/parts/knomial.h"

namespace unisono::algorithm {
namespace {

TEST(KnomialTree, IsTheTextbooksForEightAndSixteen) {
  const KnomialTree binomial(2, 8);
  EXPECT_EQ(binomial.children(0), (std::vector<int>{4, 2, 1}));
  EXPECT_EQ(binomial.children(4), (std::vector<int>{6, 5}));
  EXPECT_EQ(binomial.parent(7), 6);
  EXPECT_EQ(binomial.max_depth(), 3);
  const KnomialTree wide(4, 16);
  EXPECT_EQ(wide.children(0), (std::vector<int>{4, 8, 12, 1, 2, 3}));
  EXPECT_EQ(wide.parent(14), 12);
  EXPECT_EQ(wide.max_depth(), 2);
}

TEST(KnomialTree, SubtreesAreRangesThatFitTogether) {
  for (int radix : {2, 3, 4, 8})
    for (int size = 1; size <= 70; ++size) {
      const KnomialTree tree(radix, size);
      EXPECT_EQ(tree.subtree(0), size);
      for (int v = 0; v < size; ++v) {
        int inside = 1;
        for (int child : tree.children(v)) {
          EXPECT_EQ(tree.parent(child), v) << radix << ", " << size;
          EXPECT_EQ(tree.depth(child), tree.depth(v) + 1);
          EXPECT_LE(child + tree.subtree(child), v + tree.subtree(v));
          inside += tree.subtree(child);
        }
        EXPECT_EQ(inside, tree.subtree(v)) << v << " of " << size << ", radix " << radix;
      }
    }
}

// Root 4 of 6: positions 0 .. 5 are ranks 4, 5, 0, 1, 2, 3.
TEST(Binomial, BroadcastServesTheLargestSubtreeFirst) {
  EXPECT_EQ(messages_of(binomial_broadcast, 6, 4, 4), (Messages{{2, 1}, {0, 1}, {5, 1}}));
  EXPECT_EQ(messages_of(binomial_broadcast, 6, 2, 4), (Messages{{3, 1}}));
  EXPECT_EQ(messages_of(binomial_broadcast, 6, 5, 4), Messages{});
}

TEST(Binomial, ReduceSendsOneMessageFromEveryRankButTheRoot) {
  for (int ranks : {1, 2, 6, 13})
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(messages_of(binomial_reduce, ranks, rank, ranks / 2).size(),
                rank == ranks / 2 ? 0U : 1U);
}

TEST(Binomial, GatherSendsWholeSubtreesAndSplitsThemAtTheEndOfTheRootsBuffer) {
  const Entry& entry = binomial_gather;
  // Root 0 of 8: ranks 4 .. 7 in one message from 4, ranks 6 and 7 from 6.
  EXPECT_EQ(messages_of(entry, 8, 4), (Messages{{0, 4}}));
  EXPECT_EQ(messages_of(entry, 8, 6), (Messages{{4, 2}}));
  EXPECT_EQ(messages_of(entry, 8, 7), (Messages{{6, 1}}));
  // Root 6 of 8: position 4 is rank 2, whose subtree is ranks 2 .. 5; root 2: rank 6 has 6, 7,
  // 0, 1.
  EXPECT_EQ(messages_of(entry, 8, 2, 6), (Messages{{6, 4}}));
  EXPECT_EQ(messages_of(entry, 8, 6, 2), (Messages{{2, 2}, {2, 2}}));
}

TEST(Binomial, ScatterIsGatherBackwards) {
  for (int root : {0, 2, 6}) {
    int sent = 0;
    for (const Sent& message : messages_of(binomial_scatter, 8, root, root)) sent += message.chunks;
    EXPECT_EQ(sent, 7);
  }
  EXPECT_EQ(messages_of(binomial_scatter, 8, 2, 2), (Messages{{6, 2}, {6, 2}, {4, 2}, {3, 1}}));
}

TEST(Knomial, LeavesTakeNoScratchAndOthersTheirSubtree) {
  for (const Entry* entry : {&knomial_gather, &knomial_scatter})
    for (int rank = 0; rank < 16; ++rank)
      EXPECT_EQ(program_of(*entry, 16, rank).scratch_blocks, rank > 0 && rank % 4 == 0 ? 4 : 0);
}

}  // namespace
}  // namespace unisono::algorithm
