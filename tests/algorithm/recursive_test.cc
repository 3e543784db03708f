// The recursive algorithms meet the partners, and send the amounts, that the textbook says.
#include <gtest/gtest.h>

#include "algorithm/algorithms.h"
#include "algorithm/messages.h"
#include "algorithm/parts/halving.h"
#include "algorithm/parts/powers.h"

namespace unisono::algorithm {
namespace {

TEST(Powers, LogarithmsAndReversedBits) {
  EXPECT_EQ(ceil_log2(1), 0);
  EXPECT_EQ(ceil_log2(8), 3);
  EXPECT_EQ(ceil_log2(9), 4);
  EXPECT_EQ(floor_log2(9), 3);
  EXPECT_EQ(reverse_bits(0b0011, 4), 0b1100);
  EXPECT_EQ(reverse_bits(0b001, 3), 0b100);
}

TEST(Fold, GivesEveryRankItsPlace) {
  for (int ranks = 1; ranks <= 70; ++ranks) {
    const Fold fold(ranks);
    int core = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      if (fold.is_folded(rank)) {
        EXPECT_TRUE(fold.acts_for_two(rank + 1)) << rank << " of " << ranks;
        continue;
      }
      EXPECT_EQ(fold.index_of(rank), core++);
      EXPECT_EQ(fold.rank_of(fold.index_of(rank)), rank);
    }
    EXPECT_EQ(core, fold.size);
  }
}

TEST(RecursiveDoublingAllReduce, ExchangesEverythingAtDistancesOneTwoFour) {
  EXPECT_EQ(messages_of(recursive_doubling_all_reduce, 8, 5), (Messages{{4, 1}, {7, 1}, {1, 1}}));
}

// p = 6: rem = 2, so 0 and 2 are folded into 1 and 3; the core is 1, 3, 4, 5.
TEST(RecursiveDoublingAllReduce, FoldsTheEvenRanksOfTheFirstPairs) {
  const Entry& entry = recursive_doubling_all_reduce;
  EXPECT_EQ(messages_of(entry, 6, 0), (Messages{{1, 1}}));
  EXPECT_EQ(messages_of(entry, 6, 1), (Messages{{3, 1}, {4, 1}, {0, 1}}));
  EXPECT_EQ(messages_of(entry, 6, 2), (Messages{{3, 1}}));
  EXPECT_EQ(messages_of(entry, 6, 3), (Messages{{1, 1}, {5, 1}, {2, 1}}));
  EXPECT_EQ(messages_of(entry, 6, 4), (Messages{{5, 1}, {1, 1}}));
  EXPECT_EQ(messages_of(entry, 6, 5), (Messages{{4, 1}, {3, 1}}));
}

TEST(RecursiveDoublingAllGather, SendsSmallMessagesNearAndLargeOnesFar) {
  EXPECT_EQ(messages_of(recursive_doubling_all_gather_near, 8, 5),
            (Messages{{4, 1}, {7, 2}, {1, 4}}));
}

TEST(RecursiveDoublingAllGather, FarthestFirstSendsSmallMessagesFar) {
  EXPECT_EQ(messages_of(recursive_doubling_all_gather_far, 8, 5),
            (Messages{{1, 1}, {7, 2}, {4, 4}}));
}

TEST(RecursiveHalvingReduceScatter, HalvesTheVectorAndDoublesTheDistance) {
  EXPECT_EQ(messages_of(recursive_halving_reduce_scatter, 8, 5),
            (Messages{{4, 4}, {7, 2}, {1, 1}}));
}

TEST(Rabenseifner, HalvesAndThenDoubles) {
  const plan::RankProgram program = program_of(rabenseifner_all_reduce, 8, 5);
  EXPECT_EQ(messages_of(program, 0), (Messages{{1, 4}, {7, 2}, {4, 1}}));
  EXPECT_EQ(messages_of(program, 1), (Messages{{4, 1}, {7, 2}, {1, 4}}));
}

TEST(Rabenseifner, TakesNoScratch) {
  for (int ranks : {2, 7, 8, 33})
    for (bool in_place : {false, true})
      EXPECT_EQ(program_of(rabenseifner_all_reduce, ranks, ranks / 2, 0, in_place).scratch_blocks,
                0);
}

// p = 3: 0 | 1 2, with 2 the odd one and 0 its host; then 1 | 2.
TEST(Rabenseifner, OddRanksTurnToTheHost) {
  const auto both = [](int rank) {
    const plan::RankProgram program = program_of(rabenseifner_all_reduce, 3, rank);
    return std::pair(messages_of(program, 0), messages_of(program, 1));
  };
  EXPECT_EQ(both(0), std::pair(Messages({{1, 2}}), Messages({{1, 1}, {2, 1}})));
  EXPECT_EQ(both(1), std::pair(Messages({{0, 1}, {2, 1}}), Messages({{2, 1}, {0, 2}})));
  EXPECT_EQ(both(2), std::pair(Messages({{0, 1}, {1, 1}}), Messages({{1, 1}})));
}

TEST(Halvings, PartnersAreAtDistancesOfPowersOfTwoWhereTheSizeIsOne) {
  for (int me = 0; me < 16; ++me) {
    const std::vector<Halves> levels = halvings(16, me);
    ASSERT_EQ(levels.size(), 4U);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(levels[static_cast<std::size_t>(i)].partner(), me ^ (8 >> i));
      EXPECT_FALSE(levels[static_cast<std::size_t>(i)].has_odd());
    }
  }
}

TEST(Halvings, PartnersAgreeAndHalvesFitForAnySize) {
  for (int size = 1; size <= 70; ++size)
    for (int me = 0; me < size; ++me) {
      const std::vector<Halves> levels = halvings(size, me);
      EXPECT_GE(static_cast<int>(levels.size()), floor_log2(size));
      EXPECT_LE(static_cast<int>(levels.size()), ceil_log2(size));
      for (std::size_t i = 0; i < levels.size(); ++i) {
        const Halves& level = levels[i];
        EXPECT_LE(level.my_first(), me);
        EXPECT_LT(me, level.my_first() + level.my_size());
        if (level.is_odd()) continue;
        const Halves other = halvings(size, level.partner())[i];
        EXPECT_EQ(other.partner(), me);
        EXPECT_EQ(other.my_first(), level.other_first());
        EXPECT_EQ(other.my_size(), level.other_size());
      }
    }
}

}  // namespace
}  // namespace unisono::algorithm
