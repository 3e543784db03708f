// How calls between all ranks in protocol LL128 go, by their sizes.
#include "engine/gpu/lines.h"

#include <gtest/gtest.h>

#include "support/carried.h"

namespace unisono::engine::gpu {
namespace {

constexpr std::uint64_t mib = 1 << 20;

int bulk_blocks_of(Collective collective, std::string_view algorithm, int ranks,
                   std::uint64_t longest, int max_sms = 0, bool leaves_room = false) {
  const LinesCall call{
      collective, ranks,   test::lines_hops(**algorithm::find(collective, algorithm), ranks),
      longest,    max_sms, leaves_room};
  return bulk_blocks(call, {});
}

TEST(Lines, LargeCallsGoInBulkWhereFewThreadBlocksAreAsFast) {
  for (const auto& [collective, algorithm, ranks] :
       {std::tuple{Collective::broadcast, "two_shot", 2},
        {Collective::broadcast, "two_shot", 4},
        {Collective::reduce, "knomial4", 2},
        {Collective::reduce_scatter, "direct", 2}}) {
    SCOPED_TRACE(testing::Message() << name(collective) << ", " << ranks << " ranks");
    EXPECT_EQ(bulk_blocks_of(collective, algorithm, ranks, 16 * mib - 1), 0);
    EXPECT_EQ(bulk_blocks_of(collective, algorithm, ranks, 16 * mib), 16);
  }
}

// Faster otherwise, or not measured; by the plan of one hop.
TEST(Lines, NoOtherCallsGoInBulkByThemselves) {
  for (const auto& [collective, algorithm, ranks] :
       {std::tuple{Collective::all_reduce, "two_shot", 2},
        {Collective::all_gather, "direct", 2},
        {Collective::all_to_all, "direct", 2},
        {Collective::reduce, "two_shot", 2},
        {Collective::reduce, "two_shot", 4},
        {Collective::reduce_scatter, "direct", 4}}) {
    SCOPED_TRACE(testing::Message() << name(collective) << ", " << ranks << " ranks");
    EXPECT_EQ(bulk_blocks_of(collective, algorithm, ranks, 1024 * mib), 0);
  }
}

// 16 MiB or more in all.
TEST(Lines, LargeCallsThatLeaveRoomTakeFewThreadBlocks) {
  for (const auto& [collective, algorithm] : {std::pair{Collective::all_reduce, "two_shot"},
                                              {Collective::all_gather, "direct"},
                                              {Collective::reduce_scatter, "direct"}})
    for (const int ranks : {2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << name(collective) << ", " << ranks << " ranks");
      const std::uint64_t block = 16 * mib / static_cast<std::uint64_t>(ranks);
      EXPECT_EQ(bulk_blocks_of(collective, algorithm, ranks, block, 0, true), 8);
      EXPECT_EQ(bulk_blocks_of(collective, algorithm, ranks, block, 64, true), 8);
      EXPECT_EQ(bulk_blocks_of(collective, algorithm, ranks, block, 12, true), 12);
      EXPECT_EQ(bulk_blocks_of(collective, algorithm, ranks, block - 1, 0, true), 0);
    }
  EXPECT_EQ(bulk_blocks_of(Collective::all_to_all, "direct", 2, 16 * mib, 0, true), 0);
  EXPECT_EQ(bulk_blocks_of(Collective::broadcast, "two_shot", 2, 16 * mib, 0, true), 16);
}

TEST(Lines, FewThreadBlocksAllCopyInBulk) {
  for (const auto& [collective, algorithm] : {std::pair{Collective::all_reduce, "two_shot"},
                                              {Collective::all_gather, "direct"},
                                              {Collective::reduce, "two_shot"},
                                              {Collective::scatter, "knomial4"}}) {
    SCOPED_TRACE(name(collective));
    EXPECT_EQ(bulk_blocks_of(collective, algorithm, 4, 128 << 10, 8), 8);
    EXPECT_EQ(bulk_blocks_of(collective, algorithm, 4, (128 << 10) - 1, 8), 0);
    EXPECT_EQ(bulk_blocks_of(collective, algorithm, 4, 16 * mib, 33), 0);
  }
  EXPECT_EQ(bulk_blocks_of(Collective::reduce, "knomial4", 4, mib, 8), 0);
}

}  // namespace
}  // namespace unisono::engine::gpu
