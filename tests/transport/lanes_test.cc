// Which lane takes which bytes of a put: counts and lengths, without a network.

#include "transport/lanes/lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace unisono::test {
namespace {

using transport::Lanes;

// The bytes that each lane takes of one put.
std::vector<std::size_t> shares(Lanes& lanes, std::size_t put_bytes) {
  std::vector<std::size_t> out(lanes.count());
  for (std::size_t done = 0; done < put_bytes;) {
    const std::size_t bytes = std::min(lanes.piece_bytes(put_bytes), put_bytes - done);
    out[lanes.next()] += bytes;
    done += bytes;
    lanes.give();
  }
  return out;
}

TEST(Lanes, OneTakesEverythingWhole) {
  const Lanes lanes(1, 1);
  EXPECT_TRUE(lanes.stays_whole(std::size_t{1} << 30));
}

TEST(Lanes, ShortPutsStayWholeOnSeveral) {
  const Lanes lanes(2, 2);
  EXPECT_TRUE(lanes.stays_whole(Lanes::most_whole_bytes));
  EXPECT_FALSE(lanes.stays_whole(Lanes::most_whole_bytes + 1));
}

TEST(Lanes, OfOneRailTakePiecesInTurn) {
  Lanes lanes(2, 1);
  const std::size_t piece = std::size_t{256} << 10;
  EXPECT_EQ(shares(lanes, 5 * piece), (std::vector{3 * piece, 2 * piece}));
  EXPECT_EQ(shares(lanes, 100), (std::vector<std::size_t>{0, 100})) << "the turn goes on";
  EXPECT_EQ(lanes.pieces(), 6U);
}

TEST(Lanes, OfSeveralRailsTakeEqualPartsOfWholeLines) {
  Lanes lanes(2, 2);
  EXPECT_EQ(shares(lanes, 100'000), (std::vector<std::size_t>{50'048, 49'952}));
}

}  // namespace
}  // namespace unisono::test
