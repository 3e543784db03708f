// Ranks as processes: they agree, and when one is killed the others say which.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/str.h"
#include "support/eventually.h"
#include "support/folders.h"
#include "support/ranks.h"
#include "support/sanitized.h"

namespace unisono {
namespace {

struct Outcome {
  int exit_code = -1;
  bool killed = false;
  std::string output;

  // The value of a word of it, such as "peer=2".
  std::string word(std::string_view name) const {
    const std::size_t at = output.find(str(" ", name, "="));
    if (at == std::string::npos) return {};
    const std::size_t begin = at + name.size() + 2;
    return output.substr(begin, output.find(' ', begin) - begin);
  }
  bool begins(std::string_view text) const { return output.rfind(text, 0) == 0; }
};

// Runs tests/fault/rank_main.cc on every rank; each in its own environment.
std::vector<Outcome> run_processes(const test::RanksOptions& options,
                                   const std::vector<std::string>& arguments) {
  const test::Rendezvous rendezvous;
  const std::string stem = rendezvous.url().substr(7);
  std::vector<pid_t> children;
  std::vector<std::string> outputs;
  for (int rank = 0; rank < options.ranks; ++rank) {
    outputs.push_back(str(stem, "-output", rank));
    std::vector<std::string> environment{
        str("UNISONO_RANK=", rank),
        str("UNISONO_WORLD_SIZE=", options.ranks),
        "UNISONO_RENDEZVOUS=" + rendezvous.url(),
        "UNISONO_NODE=" + test::node_name(options, rank),
        "UNISONO_TRANSPORT=" + options.transport,
        str("UNISONO_TIMEOUT=", options.timeout / std::chrono::milliseconds(1), "ms"),
        "UNISONO_LOG=off"};
    if (test::is_sanitized) {
      environment.emplace_back("UNISONO_SIMPLE_SLOT_BYTES=16KiB");
      environment.emplace_back("UNISONO_ZERO_COPY=1");
      environment.emplace_back("UNISONO_ZERO_COPY_MIN_BYTES=8KiB");
    }
    std::vector<std::string> command{test::build_folder() + "/rank", "--stem", stem + "-joined"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv, envp;
    for (std::string& word : command) argv.push_back(word.data());
    for (std::string& word : environment) envp.push_back(word.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, outputs.back().c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t child = 0;
    EXPECT_EQ(posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), envp.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
    children.push_back(child);
  }
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < children.size(); ++i) {
    int status = 0;
    waitpid(children[i], &status, 0);
    std::ostringstream text;
    text << std::ifstream(outputs[i]).rdbuf();
    outcomes.push_back(
        {WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) != 0, text.str()});
  }
  return outcomes;
}

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
  for (const Outcome& outcome : outcomes)
    EXPECT_NE(outcome.output.find("rank 1"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace unisono
