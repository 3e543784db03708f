#include "comm/board.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "base/str.h"

namespace unisono::comm {
namespace {

// Ranks 3, 5 and 8 of a node.
class Board : public testing::Test {
 protected:
  const std::string name_ = str("test-", getpid());
  comm::Board three_{name_, 3, {3, 5, 8}}, five_{name_, 5, {3, 5, 8}}, eight_{name_, 8, {3, 5, 8}};

  void SetUp() override { three_.all_have_joined(); }
  static std::set<int> at_rest(const comm::Board& board) {
    std::set<int> out;
    board.any_at_rest([&](int rank) {
      out.insert(rank);
      return false;
    });
    return out;
  }
};

TEST_F(Board, RanksAreAtRestUntilTheyAreSeenOnAnotherProcessor) {
  three_.runs_on(0);
  EXPECT_EQ(at_rest(three_), (std::set{5, 8}));
  five_.runs_on(1);
  EXPECT_EQ(at_rest(three_), (std::set{8}));
  eight_.runs_on(0);
  EXPECT_EQ(at_rest(three_), (std::set{8}));
  EXPECT_EQ(at_rest(five_), std::set<int>{});
  three_.rests();
  EXPECT_EQ(at_rest(five_), (std::set{3}));
}

TEST_F(Board, LooksAtNoMoreRanksOnceOneMatches) {
  EXPECT_TRUE(three_.any_at_rest([](int rank) { return rank == 5; }));
  EXPECT_FALSE(three_.any_at_rest([](int rank) { return rank == 3; }));
}

TEST_F(Board, RanksAreElsewhereThatRunAndHaveNotStartedTheCall) {
  const auto elsewhere = [this](std::uint64_t sequence) {
    return three_.any_elsewhere(sequence, [](int rank) { return rank == 5; });
  };
  EXPECT_FALSE(elsewhere(4)) << "nothing is known of where it runs";
  five_.runs_on(1);
  EXPECT_TRUE(elsewhere(4));
  five_.joined(3);
  EXPECT_TRUE(elsewhere(4));
  five_.rests();
  EXPECT_FALSE(elsewhere(4));
  five_.runs_on(1);
  five_.joined(4);
  EXPECT_FALSE(elsewhere(4));
  eight_.runs_on(1);
  EXPECT_FALSE(elsewhere(4)) << "nobody waits for rank 8";
}

}  // namespace
}  // namespace unisono::comm
