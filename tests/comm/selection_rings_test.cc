// Which plan calls on streams take over ring links, whose messages one thread forwards.

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "comm/select/selection.h"

namespace unisono::comm {
namespace {

Selection ring_selection(int nodes, int thread_blocks = 132) {
  std::vector<int> node_of(static_cast<std::size_t>(nodes));
  std::iota(node_of.begin(), node_of.end(), 0);
  const engine::gpu::Options options;
  return Selection(topo::Placement::from_nodes(node_of).value(),
                   ring_model(options, thread_blocks,
                              engine::gpu::PathTable::built_in().resolve(
                                  90, true, options.zero_copy_min_bytes)));
}

// Each message costs the forwarder a turn, so small calls have one at a time.
TEST(RingSelection, SmallCallsHaveOneChannelAndLargeOnesAFew) {
  Selection selection = ring_selection(2);
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
        Collective::all_to_all, Collective::broadcast}) {
    for (const std::uint64_t bytes : {8, 1 << 10, 1 << 14, 1 << 16}) {
      const auto explained = selection.explain(collective, bytes);
      ASSERT_TRUE(explained.ok());
      EXPECT_EQ(explained->channels, 1) << name(collective) << " of " << bytes;
      EXPECT_EQ(explained->protocol, Protocol::simple);
    }
    const auto large = selection.explain(collective, 64 << 20);
    ASSERT_TRUE(large.ok());
    EXPECT_GT(large->channels, 1) << name(collective);
    EXPECT_LE(large->channels, 8) << name(collective);
  }
  // A ring in both directions has twice the messages.
  EXPECT_EQ(selection.explain(Collective::all_gather, 1 << 10)->algorithm, "ring");
}

TEST(RingSelection, ServesWhatADeviceRuns) {
  Selection small = ring_selection(16);
  Selection large = ring_selection(17);
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_to_all, Collective::gather}) {
    EXPECT_TRUE(small.serves(collective)) << name(collective);
    EXPECT_TRUE(large.serves(collective)) << name(collective);
  }
  // A launch has room for the counts of 16 ranks.
  EXPECT_TRUE(small.serves(Collective::all_to_all_v));
  EXPECT_FALSE(large.serves(Collective::all_to_all_v));
  // No plan of it has a thread block less than one for each direction.
  Selection narrow = ring_selection(16, 1);
  EXPECT_FALSE(narrow.serves(Collective::all_to_all_v));
}

}  // namespace
}  // namespace unisono::comm
