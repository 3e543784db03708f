// Ranks as processes: they agree, and when one is killed the others say which.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/str.h"
#include "support/ranks.h"
#include "support/sanitized.h"

namespace unisono {
namespace {

struct Outcome {
  int exit_code = -1;
  bool killed = false;
  std::string output;
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
    std::vector<std::string> environment{str("UNISONO_RANK=", rank),
                                         str("UNISONO_WORLD_SIZE=", options.ranks),
                                         "UNISONO_RENDEZVOUS=" + rendezvous.url(),
                                         "UNISONO_NODE=" + test::node_name(options, rank),
                                         "UNISONO_TRANSPORT=" + options.transport,
                                         "UNISONO_TIMEOUT=40s",
                                         "UNISONO_LOG=off"};
    if (test::is_sanitized) {
      environment.emplace_back("UNISONO_SIMPLE_SLOT_BYTES=16KiB");
      environment.emplace_back("UNISONO_ZERO_COPY=1");
      environment.emplace_back("UNISONO_ZERO_COPY_MIN_BYTES=8KiB");
    }
    std::vector<std::string> command{std::string(UNISONO_BINARY_DIR) + "/rank", stem + "-joined"};
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

class Processes : public testing::TestWithParam<Shape> {};

TEST_P(Processes, Agree) {
  const Shape shape = GetParam();
  const auto outcomes =
      run_processes({.ranks = 4, .nodes = shape.nodes, .transport = shape.transport},
                    {"run", "-1", "0", "20", str(shape.elements)});
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.output, "done\n");
}

// Rank 2 is lost in the middle of calls, or before any rank has a connection for data.
TEST_P(Processes, NameTheKilledOne) {
  const Shape shape = GetParam();
  for (const char* round : {"10", "0"}) {
    const auto outcomes =
        run_processes({.ranks = 4, .nodes = shape.nodes, .transport = shape.transport},
                      {"kill", "2", round, "1000000", str(shape.elements)});
    EXPECT_TRUE(outcomes[2].killed);
    for (std::size_t rank : {0U, 1U, 3U}) {
      EXPECT_EQ(outcomes[rank].exit_code, 3) << "rank " << rank << ": " << outcomes[rank].output;
      EXPECT_EQ(outcomes[rank].output.rfind("failed peer=2 timed_out=0 aborted=0", 0), 0U)
          << "rank " << rank << ", round " << round << ": " << outcomes[rank].output;
    }
  }
}

// The one that aborts goes at once, and may be gone before others look.
TEST_P(Processes, NameTheOneThatAborts) {
  const Shape shape = GetParam();
  for (const char* round : {"10", "0"}) {
    const auto outcomes =
        run_processes({.ranks = 4, .nodes = shape.nodes, .transport = shape.transport},
                      {"abort", "2", round, "1000000", str(shape.elements)});
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
      EXPECT_EQ(outcomes[rank].output.rfind("failed peer=2 timed_out=0 aborted=1", 0), 0U)
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

}  // namespace
}  // namespace unisono
