#include "comm/run/status_page.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "base/error.h"
#include "base/str.h"
#include "sys/real_world.h"

namespace unisono::comm {
namespace {

// Ranks 3, 5 and 8 of a node.
class StatusPage : public testing::Test {
 protected:
  const std::string name_ = str("test-", getpid());
  const std::unique_ptr<sys::RealWorld> world_ = std::move(*sys::RealWorld::create());
  comm::StatusPage three_{*world_, name_, 3, {3, 5, 8}, 9}, five_{*world_, name_, 5, {3, 5, 8}, 9},
      eight_{*world_, name_, 8, {3, 5, 8}, 9};

  void SetUp() override { three_.all_have_joined(); }
  static std::set<int> at_rest(const comm::StatusPage& status_page) {
    std::set<int> out;
    status_page.any_at_rest([&](int rank) {
      out.insert(rank);
      return false;
    });
    return out;
  }
};

TEST_F(StatusPage, RanksAreAtRestUntilTheyAreSeenOnAnotherProcessor) {
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

TEST_F(StatusPage, LooksAtNoMoreRanksOnceOneMatches) {
  EXPECT_TRUE(three_.any_at_rest([](int rank) { return rank == 5; }));
  EXPECT_FALSE(three_.any_at_rest([](int rank) { return rank == 3; }));
}

TEST_F(StatusPage, RanksAreElsewhereThatRunAndHaveNotStartedTheCall) {
  const auto elsewhere = [this] {
    return three_.any_elsewhere([](int rank) { return rank == 5; });
  };
  three_.joined();
  three_.joined();
  EXPECT_FALSE(elsewhere()) << "nothing is known of where it runs";
  five_.runs_on(1);
  EXPECT_TRUE(elsewhere());
  five_.joined();
  EXPECT_TRUE(elsewhere());
  EXPECT_EQ(three_.absent(), (std::vector{5, 8}));
  five_.rests();
  EXPECT_FALSE(elsewhere());
  five_.runs_on(1);
  five_.joined();
  EXPECT_FALSE(elsewhere());
  EXPECT_EQ(three_.absent(), (std::vector{8}));
  eight_.runs_on(1);
  EXPECT_FALSE(elsewhere()) << "nobody waits for rank 8";
}

TEST_F(StatusPage, ARankIsAwaitedWhoseNeighbourIsInALaterCollective) {
  EXPECT_FALSE(three_.is_awaited());
  three_.joined();
  EXPECT_FALSE(three_.is_awaited()) << "it waits for the others";
  EXPECT_TRUE(five_.is_awaited());
  five_.joined();
  EXPECT_FALSE(five_.is_awaited());
  EXPECT_TRUE(eight_.is_awaited());
}

TEST_F(StatusPage, TellsWhoseCallOfTheSameNumberIsAnother) {
  EXPECT_FALSE(three_.other_call());
  five_.shows(17);
  EXPECT_FALSE(three_.other_call()) << "nothing is started here";
  three_.shows(17);
  EXPECT_FALSE(three_.other_call());
  // Those who are behind, or gone on, are not in another call.
  eight_.shows(17);
  eight_.shows(18);
  eight_.shows(19);
  EXPECT_FALSE(three_.other_call());
  three_.shows(20);
  const auto other = three_.other_call();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->rank, 8);
  EXPECT_EQ(other->theirs, 18U);
  EXPECT_EQ(other->ours, 20U);
  // It does not tell any more what that call was.
  for (int i = 0; i < 3; ++i) eight_.shows(30);
  EXPECT_FALSE(three_.other_call());
}

TEST_F(StatusPage, TellsWhyARankFoundThatCallsDoNotMatch) {
  const transport::Fault fault{.kind = transport::Fault::Kind::disagreed};
  five_.give_up(fault, peer_error(-1, "rank 3 calls barrier; rank 5 calls all_reduce"));
  const auto told = three_.told();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->kind, ErrorKind::peer);
  EXPECT_EQ(told->peer, -1);
  EXPECT_EQ(told->message,
            "rank 5 aborted the call: rank 3 calls barrier; rank 5 calls all_reduce");
  EXPECT_EQ(told->reason, FailureReason::mismatch);
}

TEST_F(StatusPage, TellsWhyARankGaveUp) {
  five_.give_up({.kind = transport::Fault::Kind::timed_out, .rank = 3},
                {.message = "rank 3 has not ended its call",
                 .reason = FailureReason::not_in_call,
                 .finder = 8,
                 .call = 12});
  const auto told = three_.told();
  ASSERT_TRUE(told);
  EXPECT_TRUE(told->timed_out);
  EXPECT_EQ(told->peer, 3);
  EXPECT_EQ(told->message, "rank 3 has not ended its call");
  EXPECT_EQ(told->reason, FailureReason::not_in_call);
  EXPECT_EQ(told->finder, 8);
  EXPECT_EQ(told->call, 12);
}

}  // namespace
}  // namespace unisono::comm
