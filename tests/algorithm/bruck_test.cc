// Bruck's algorithms, the exchanges of everybody with everybody, and the barrier.
#include <gtest/gtest.h>

#include "algorithm/algorithms.h"
#include "algorithm/messages.h"
#include "algorithm/parts/powers.h"

namespace unisono::algorithm {
namespace {

// Distances 1, 2, 4 with 1, 2 and 5 - 4 = 1 blocks.
TEST(BruckAllGather, SendsAllThatItHasToTheRankTwoToTheKBefore) {
  EXPECT_EQ(messages_of(bruck_all_gather, 5, 0), (Messages{{4, 1}, {3, 2}, {1, 1}}));
  EXPECT_EQ(messages_of(bruck_all_gather, 8, 0), (Messages{{7, 1}, {6, 2}, {4, 4}}));
}

TEST(BruckAllGather, SplitsTheMessageWhoseBlocksGoRoundTheEnd) {
  EXPECT_EQ(messages_of(bruck_all_gather, 5, 4), (Messages{{3, 1}, {2, 1}, {2, 1}, {0, 1}}));
  EXPECT_EQ(messages_of(bruck_all_gather, 8, 6), (Messages{{5, 1}, {4, 2}, {2, 2}, {2, 2}}));
}

TEST(BruckAllGather, TakesNoScratch) {
  for (int ranks : {2, 5, 8, 33})
    EXPECT_EQ(program_of(bruck_all_gather, ranks, ranks - 1).scratch_blocks, 0);
}

// Of the distances 1, 2, 3, 4: 1 and 3 have bit 0, 2 and 3 bit 1, 4 bit 2.
TEST(BruckAllToAll, SendsTheBlocksWhoseDistanceHasTheBit) {
  EXPECT_EQ(messages_of(bruck_all_to_all, 5, 3), (Messages{{4, 2}, {0, 2}, {2, 1}}));
}

TEST(AllToAll, DirectAndPairwiseSendOneBlockToEveryOtherRank) {
  const Messages expected{{3, 1}, {4, 1}, {0, 1}, {1, 1}};
  for (const Entry* entry :
       {&direct_all_to_all, &pairwise_all_to_all, &direct_all_to_all_v, &pairwise_all_to_all_v})
    EXPECT_EQ(messages_of(*entry, 5, 2), expected) << entry->plan_name();
}

TEST(AllToAll, TakesScratchOnlyInPlace) {
  for (const Entry* entry : {&direct_all_to_all, &pairwise_all_to_all}) {
    EXPECT_EQ(program_of(*entry, 7, 2).scratch_blocks, 0) << entry->plan_name();
    EXPECT_EQ(program_of(*entry, 7, 2, 0, true).scratch_blocks, 7) << entry->plan_name();
  }
}

TEST(AllToAllV, RefusesToWorkInPlaceAndSaysWhatWouldBeRight) {
  for (const Entry* entry : {&direct_all_to_all_v, &pairwise_all_to_all_v}) {
    const Request request{.collective = entry->collective,
                          .placement = topo::Placement::single_node(4),
                          .in_place = true};
    const Result<plan::Plan> plan = make_plan(*entry, request);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().kind, ErrorKind::misuse);
    EXPECT_NE(plan.error().message.find("in place"), std::string::npos) << plan.error().message;
    EXPECT_NE(plan.error().message.find("output buffer"), std::string::npos);
  }
}

TEST(AllToAllV, HasOneChunkABlockHoweverManyChannelsAreAskedFor) {
  const Request request{.collective = Collective::all_to_all_v,
                        .placement = topo::Placement::single_node(4),
                        .channels = 3};
  const Result<plan::Header> header = make_header(direct_all_to_all_v, request);
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->chunks_per_block, 1);
}

TEST(Direct, SendsToTheNextRankFirst) {
  const Messages expected{{3, 1}, {4, 1}, {0, 1}, {1, 1}};
  EXPECT_EQ(messages_of(direct_all_gather, 5, 2), expected);
  EXPECT_EQ(messages_of(direct_reduce_scatter, 5, 2), expected);
}

TEST(AllPairs, OneShotSendsOnceToEachAndTwoShotsTwice) {
  EXPECT_EQ(messages_of(all_pairs_one_shot_all_reduce, 4, 2), (Messages{{0, 1}, {1, 1}, {3, 1}}));
  EXPECT_EQ(messages_of(all_pairs_two_shot_all_reduce, 4, 2),
            (Messages{{3, 1}, {3, 1}, {0, 1}, {0, 1}, {1, 1}, {1, 1}}));
}

// Rank 2 of 4 adds ((0 + 1) + 2) + 3: its own block comes after rank 1's.
TEST(AllPairs, OneShotAddsInTheOrderOfRanks) {
  std::vector<std::pair<int, plan::Operation>> received;
  for (const plan::ThreadBlock& block :
       program_of(all_pairs_one_shot_all_reduce, 4, 2).thread_blocks)
    for (plan::StepCursor cursor(block.body); cursor.step() != nullptr; cursor.advance())
      if (cursor.step()->operation != plan::Operation::send)
        received.emplace_back(block.recv_peer, cursor.step()->operation);
  using enum plan::Operation;
  EXPECT_EQ(received, (std::vector<std::pair<int, plan::Operation>>{
                          {0, recv}, {1, recv_reduce_copy}, {1, reduce}, {3, recv_reduce_copy}}));
}

TEST(DisseminationBarrier, SendsATokenToTheRankTwoToTheKFurther) {
  EXPECT_EQ(messages_of(dissemination_barrier, 6, 4), (Messages{{5, 1}, {0, 1}, {2, 1}}));
  for (int ranks = 1; ranks <= 40; ++ranks)
    EXPECT_EQ(static_cast<int>(messages_of(dissemination_barrier, ranks, 0).size()),
              ceil_log2(ranks));
}

}  // namespace
}  // namespace unisono::algorithm
