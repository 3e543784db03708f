#include "comm/run/status_page.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
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

CallId call(std::uint64_t what, std::uint32_t plan = 3) { return {.what = what, .plan = plan}; }

TEST_F(StatusPage, TellsWhoseCallOfTheSameNumberIsAnother) {
  EXPECT_FALSE(three_.other_call());
  five_.shows(call(17));
  EXPECT_FALSE(three_.other_call()) << "nothing is started here";
  three_.shows(call(17));
  EXPECT_FALSE(three_.other_call());
  // Those who are behind, or gone on, are not in another call.
  eight_.shows(call(17));
  eight_.shows(call(18));
  eight_.shows(call(19));
  EXPECT_FALSE(three_.other_call());
  three_.shows(call(20));
  const auto other = three_.other_call();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->rank, 8);
  EXPECT_EQ(other->theirs, (CallId{.what = 18, .number = 1, .plan = 3}));
  EXPECT_EQ(other->ours, (CallId{.what = 20, .number = 1, .plan = 3}));
  // It does not tell any more what that call was.
  for (int i = 0; i < 3; ++i) eight_.shows(call(30));
  EXPECT_FALSE(three_.other_call());
}

TEST_F(StatusPage, TellsWhoseCallRunsByAnotherPlan) {
  three_.shows(call(17, 3));
  five_.shows(call(17, 3));
  EXPECT_FALSE(three_.other_call());
  eight_.shows(call(17, 4));
  const auto other = three_.other_call();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->rank, 8);
  EXPECT_EQ(other->theirs.plan, 4U);
  EXPECT_EQ(other->ours.plan, 3U);
}

TEST_F(StatusPage, TellsTheEarliestCallThatIsAnother) {
  for (const std::uint64_t what : {1, 2, 3, 4}) three_.shows(call(what));
  for (const std::uint64_t what : {1, 7, 8}) five_.shows(call(what));
  const auto other = three_.other_call();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->ours, (CallId{.what = 2, .number = 1, .plan = 3}));
  EXPECT_EQ(other->theirs, (CallId{.what = 7, .number = 1, .plan = 3}));
}

TEST_F(StatusPage, TellsWhoseStreamIsInAnotherCallOfTheSameNumber) {
  const CallId ours{.what = 17, .number = 4, .plan = 3};
  EXPECT_FALSE(three_.other_launched(ours)) << "nobody shows any";
  const std::array behind{CallId{.what = 16, .number = 3, .plan = 3}};
  five_.shows_launched(behind);
  const std::array alike{CallId{.what = 18, .number = 5, .plan = 3}, ours};
  eight_.shows_launched(alike);
  EXPECT_FALSE(three_.other_launched(ours));
  for (const CallId& theirs :
       {CallId{.what = 19, .number = 4, .plan = 3}, CallId{.what = 17, .number = 4, .plan = 5}}) {
    five_.shows_launched(std::array{theirs});
    const auto other = three_.other_launched(ours);
    ASSERT_TRUE(other);
    EXPECT_EQ(other->rank, 5);
    EXPECT_EQ(other->theirs, theirs);
    EXPECT_EQ(other->ours, ours);
  }
}

// They count calls in graphs once, and run them often.
TEST_F(StatusPage, DoesNotCompareStreamsOfRanksThatHaveCaptured) {
  const CallId ours{.what = 17, .number = 4, .plan = 3};
  for (comm::StatusPage* other : {&five_, &eight_})
    other->shows_launched(std::array{CallId{.what = 19, .number = 4, .plan = 3}});
  five_.captures();
  EXPECT_EQ(three_.other_launched(ours).value_or(comm::StatusPage::OtherCall{}).rank, 8);
  three_.captures();
  EXPECT_FALSE(three_.other_launched(ours));
}

TEST_F(StatusPage, KnowsWhoseCallsItCompares) {
  EXPECT_TRUE(three_.has_line(8));
  EXPECT_FALSE(three_.has_line(4));
  const comm::StatusPage alone(*world_, name_ + "-alone", 3, {3}, 9);
  EXPECT_FALSE(alone.has_line(3)) << "nobody else is to be seen";
}

// Ranks on other nodes ask for them.
TEST_F(StatusPage, CallsAreKeptForLongerThanThePage) {
  for (const std::vector<int>& neighbours : {std::vector{3, 5}, std::vector{3}}) {
    std::shared_ptr<const KeptCalls> kept;
    {
      comm::StatusPage page(*world_, str(name_, "-kept-", neighbours.size()), 3, neighbours, 9);
      page.all_have_joined();
      kept = page.kept_calls();
      EXPECT_FALSE(kept->find(0));
      for (std::uint64_t i = 0; i < 7; ++i) page.shows(call(10 + i, 20));
    }
    EXPECT_EQ(kept->shown(), 7U);
    EXPECT_FALSE(kept->find(2)) << "of a call too long ago";
    // One that may be overwritten now is not told.
    EXPECT_FALSE(kept->find(3));
    for (std::uint32_t i = 4; i < 7; ++i)
      EXPECT_EQ(kept->find(i), (CallId{.what = 10 + i, .number = i, .plan = 20}));
    EXPECT_FALSE(kept->find(7));
    EXPECT_FALSE(kept->find(UINT64_MAX));
  }
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
