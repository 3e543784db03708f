// Ranks as processes: runs tests/fault/rank_main.cc on every rank.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/str.h"
#include "support/folders.h"
#include "support/ranks.h"
#include "support/sanitized.h"

namespace unisono::test {

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
inline std::vector<Outcome> run_processes(const RanksOptions& options,
                                          const std::vector<std::string>& arguments) {
  const Rendezvous rendezvous;
  const std::string stem = rendezvous.url().substr(7);
  std::vector<pid_t> children;
  std::vector<std::string> outputs;
  for (int rank = 0; rank < options.ranks; ++rank) {
    outputs.push_back(str(stem, "-output", rank));
    std::vector<std::string> environment{
        str("UNISONO_RANK=", rank),
        str("UNISONO_WORLD_SIZE=", options.ranks),
        "UNISONO_RENDEZVOUS=" + rendezvous.url(),
        "UNISONO_NODE=" + node_name(options, rank),
        "UNISONO_TRANSPORT=" + options.transport,
        str("UNISONO_TIMEOUT=", options.timeout / std::chrono::milliseconds(1), "ms"),
        "UNISONO_LOG=off"};
    if (is_sanitized) {
      environment.emplace_back("UNISONO_SIMPLE_SLOT_BYTES=16KiB");
      environment.emplace_back("UNISONO_ZERO_COPY=1");
      environment.emplace_back("UNISONO_ZERO_COPY_MIN_BYTES=8KiB");
    }
    std::vector<std::string> command{build_folder() + "/rank", "--stem", stem + "-joined"};
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

}  // namespace unisono::test
