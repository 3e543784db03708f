// Ranks as processes: they agree, and when one is killed the others say which.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/str.h"
#include "fault/rank_processes.h"
#include "support/eventually.h"
#include "support/sanitized.h"

namespace unisono {
namespace {

using test::Outcome;
using test::run_processes;

// Enough for zero-copy and several tiles.
constexpr long large = test::is_sanitized ? 30'000 : 1'000'000;
constexpr long large_on_sockets = test::is_sanitized ? 10'000 : 100'000;

struct Shape {
  int nodes;
  const char* transport;
  long elements;
};

class Processes : public testing::TestWithParam<Shape> {
 protected:
  static std::vector<Outcome> run(std::string_view kind, std::string_view round) {
    const Shape shape = GetParam();
    return run_processes(
        {.ranks = 4,
         .nodes = shape.nodes,
         .transport = shape.transport,
         .timeout = test::deadline_of_calls},
        {"--kind", std::string(kind), "--victims", "2", "--at", std::string(round), "--rounds",
         kind == "run" ? "20" : "1000000", "--elements", str(shape.elements)});
  }
};

TEST_P(Processes, Agree) {
  for (const Outcome& outcome : run("run", "0")) EXPECT_EQ(outcome.output, "outcome=done\n");
}

// Rank 2 is lost in the middle of calls, or before any rank has a connection for data.
TEST_P(Processes, NameTheKilledOne) {
  for (const char* round : {"10", "0"}) {
    const auto outcomes = run("kill", round);
    EXPECT_TRUE(outcomes[2].killed);
    for (std::size_t rank : {0U, 1U, 3U}) {
      EXPECT_EQ(outcomes[rank].exit_code, 3) << "rank " << rank << ": " << outcomes[rank].output;
      EXPECT_TRUE(outcomes[rank].begins("outcome=failed peer=2 timed_out=0 aborted=0"))
          << "rank " << rank << ", round " << round << ": " << outcomes[rank].output;
    }
  }
}

// The one that aborts goes at once, and may be gone before others look.
TEST_P(Processes, NameTheOneThatAborts) {
  for (const char* round : {"10", "0"}) {
    const auto outcomes = run("abort", round);
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
      EXPECT_TRUE(outcomes[rank].begins("outcome=failed peer=2 timed_out=0 aborted=1"))
          << "rank " << rank << ", round " << round << ": " << outcomes[rank].output;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Processes,
                         testing::Values(Shape{1, "", 1000}, Shape{1, "", large},
                                         Shape{2, "", 1000}, Shape{1, "socket", large_on_sockets}),
                         [](const auto& tested) {
                           return str("nodes", tested.param.nodes, tested.param.transport,
                                      tested.param.elements);
                         });

// All but the victims have failed, at a deadline or before any, and name the same rank; which.
int agreed_culprit(const std::vector<Outcome>& outcomes, const std::set<std::size_t>& victims,
                   bool at_deadline) {
  std::set<std::string> named;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (victims.contains(rank)) continue;
    const Outcome& outcome = outcomes[rank];
    EXPECT_TRUE(outcome.begins("outcome=failed")) << "rank " << rank << ": " << outcome.output;
    EXPECT_EQ(outcome.word("timed_out"), at_deadline ? "1" : "0")
        << "rank " << rank << ": " << outcome.output;
    // No call with the long deadline has reached it.
    EXPECT_LT(std::atol(outcome.word("after_ms").c_str()),
              test::deadline_of_calls / std::chrono::milliseconds(1))
        << "rank " << rank << ": " << outcome.output;
    named.insert(outcome.word("peer"));
  }
  EXPECT_EQ(named.size(), 1U) << "ranks named " << join(named);
  return named.empty() ? -1 : std::atoi(named.begin()->c_str());
}

// The deadline of the call that shall reach it. All ranks have made calls before, so that they do
// nothing but wait in this one.
const std::string short_timeout_ms = "1500";

class KilledNode : public testing::TestWithParam<std::string> {};

// In some of these plans the first thread block of every survivor waits for a living neighbour.
TEST_P(KilledNode, IsNoticedAndOneOfItsRanksIsNamedByAll) {
  for (const char* after_us : {"0", "300"}) {
    const auto outcomes = run_processes(
        {.ranks = 6, .nodes = 3, .timeout = test::deadline_of_calls},
        {"--kind", "kill", "--victims", "2,3", "--at", "5", "--after-us", after_us, "--rounds",
         "1000000", "--elements", str(large_on_sockets), "--algorithm", GetParam()});
    const int named = agreed_culprit(outcomes, {2, 3}, false);
    EXPECT_TRUE(named == 2 || named == 3) << named;
  }
}

INSTANTIATE_TEST_SUITE_P(AllReduce, KilledNode,
                         testing::Values("hierarchical_ring", "hierarchical_ring_direct",
                                         "hierarchical_recursive", "hierarchical_recursive_direct",
                                         "hierarchical_pat"),
                         [](const auto& tested) { return tested.param; });

class Blame : public testing::TestWithParam<Shape> {
 protected:
  static std::vector<Outcome> run(std::vector<std::string> arguments) {
    const Shape shape = GetParam();
    arguments.insert(arguments.begin(), {"--at", "5", "--elements", str(shape.elements)});
    if (std::ranges::find(arguments, "--rounds") == arguments.end())
      arguments.insert(arguments.end(), {"--rounds", "1000000"});
    return run_processes({.ranks = 4,
                          .nodes = shape.nodes,
                          .transport = shape.transport,
                          .timeout = test::deadline_of_calls},
                         arguments);
  }
};

TEST_P(Blame, OfTwoThatAreKilledAllNameTheSame) {
  const auto outcomes = run({"--kind", "kill", "--victims", "1,2"});
  const int named = agreed_culprit(outcomes, {1, 2}, false);
  EXPECT_TRUE(named == 1 || named == 2) << named;
}

// It wakes up when the others have failed, and then says itself that it was given up.
TEST_P(Blame, OneThatIsStoppedForLongerThanTheTimeoutIsNamedByAllAndByItself) {
  const auto outcomes =
      run({"--kind", "stop", "--victims", "2", "--for-ms", "-1", "--timeout-ms", short_timeout_ms});
  EXPECT_EQ(agreed_culprit(outcomes, {}, true), 2);
  // It is told so by the thread that looks for failures while it makes no call, or finds out
  // itself.
  for (const Outcome& outcome : outcomes)
    EXPECT_TRUE(outcome.output.find("rank 2 does not answer") != std::string::npos ||
                outcome.output.find("rank 2 did not answer in time") != std::string::npos)
        << outcome.output;
}

TEST_P(Blame, OneThatComputesForLongerThanTheTimeoutIsNamedByAllAndByItself) {
  const auto outcomes =
      run({"--kind", "slow", "--victims", "2", "--for-ms", "-1", "--timeout-ms", short_timeout_ms});
  EXPECT_EQ(agreed_culprit(outcomes, {}, true), 2);
}

TEST_P(Blame, OneThatLeavesIsNamedByAll) {
  const auto outcomes = run({"--kind", "leave", "--victims", "2", "--for-ms", "-1"});
  EXPECT_EQ(agreed_culprit(outcomes, {2}, false), 2);
}

TEST_P(Blame, NobodyIsNamedWhereOneIsStoppedForLessThanTheTimeout) {
  const auto outcomes =
      run({"--kind", "stop", "--victims", "2", "--for-ms", "300", "--rounds", "20"});
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.output, "outcome=done\n");
}

INSTANTIATE_TEST_SUITE_P(Shapes, Blame,
                         testing::Values(Shape{1, "", 1000}, Shape{2, "", 1000},
                                         Shape{1, "socket", large_on_sockets}),
                         [](const auto& tested) {
                           return str("nodes", tested.param.nodes, tested.param.transport);
                         });

TEST(CutOff, OneThatNothingReachesIsNamedByAllOthers) {
  const auto outcomes = run_processes({.ranks = 4, .nodes = 4, .timeout = test::deadline_of_calls},
                                      {"--kind", "black-hole", "--victims", "1", "--at", "5",
                                       "--rounds", "1000000", "--timeout-ms", short_timeout_ms});
  EXPECT_EQ(agreed_culprit(outcomes, {1}, true), 1);
}

// Either of the two ranks could be the cause; all name the same one of them.
TEST(CutOff, OfAHalfOpenConnectionAllNameTheSameEnd) {
  const auto outcomes =
      run_processes({.ranks = 4, .nodes = 4, .timeout = test::deadline_of_calls},
                    {"--kind", "half-open", "--victims", "1", "--at", "5", "--rounds", "1000000",
                     "--algorithm", "ring", "--timeout-ms", short_timeout_ms});
  // Both ends answer: the connection is lost.
  const int named = agreed_culprit(outcomes, {}, false);
  EXPECT_TRUE(named == 0 || named == 1 || named == 2) << named;
  for (const Outcome& outcome : outcomes) {
    EXPECT_NE(outcome.output.find("rank 1"), std::string::npos) << outcome.output;
    EXPECT_EQ(outcome.word("reason"), "link") << outcome.output;
  }
}

}  // namespace
}  // namespace unisono
