#include "support/forked_ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/str.h"
#include "support/eventually.h"
#include "support/ranks.h"
#include "sys/fork.h"

namespace unisono::test {
namespace {

// A process that hangs is ended after so long: later than at any deadline of its calls.
constexpr unsigned most_seconds = 300;

struct Process {
  pid_t pid = -1;
  int output = -1;
};

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 1024> part;
  for (;;) {
    const ssize_t got = read(descriptor, part.data(), part.size());
    if (got <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

std::vector<Ended> run_processes(int ranks, const std::function<std::string(int rank)>& body) {
  std::vector<Process> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(most_seconds);
      // What is said ends with the rank, whatever processes it has forked.
      sys::keep_from_children(ends[1]);
      const std::string said = body(rank);
      const auto bytes = static_cast<ssize_t>(said.size());
      _exit(write(ends[1], said.data(), said.size()) == bytes ? 0 : 1);
    }
    close(ends[1]);
    processes.push_back({pid, ends[0]});
  }
  std::vector<Ended> all;
  for (const Process& process : processes) {
    Ended ended;
    ended.said = read_all(process.output);
    close(process.output);
    int status = 0;
    waitpid(process.pid, &status, 0);
    ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ended.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    all.push_back(std::move(ended));
  }
  return all;
}

void move_to_host(int host) {
  const std::string name = str("host", host);
  EXPECT_EQ(unshare(CLONE_NEWUTS), 0);
  EXPECT_EQ(sethostname(name.data(), name.size()), 0);
  const char* const netbed = std::getenv("UNISONO_TEST_NETBED");
  if (netbed == nullptr) return;
  const int network = open(str("/var/run/netns/", netbed, "-node", host).c_str(), O_RDONLY);
  EXPECT_EQ(setns(network, CLONE_NEWNET), 0) << netbed << " has no node " << host;
  close(network);
}

std::vector<Ended> run_forked(int ranks, const std::function<std::string(Communicator&)>& body,
                              const std::function<void(int rank, InitOptions& options)>& prepare) {
  const Rendezvous rendezvous;
  return run_processes(ranks, [&](int rank) {
    InitOptions options;
    options.rank = rank;
    options.world_size = ranks;
    options.rendezvous = rendezvous.url();
    options.node = "node";
    options.timeout = deadline_of_calls;
    options.bootstrap_timeout = deadline_of_calls;
    if (prepare) prepare(rank, options);
    auto made = Communicator::init(options);
    return made.ok() ? body(*made) : "init: " + made.error().describe();
  });
}

std::string reduce(Communicator& communicator, std::size_t elements) {
  std::vector<float> data(elements, static_cast<float>(communicator.rank() + 1));
  const auto status = communicator.all_reduce(
      data.data(), data.data(), static_cast<std::int64_t>(elements), DataType::float32);
  if (!status.ok()) return status.error().describe();
  const int ranks = communicator.size();
  for (const float element : data)
    if (element != static_cast<float>(ranks * (ranks + 1) / 2)) return str("wrong: ", element);
  return {};
}

}  // namespace unisono::test
