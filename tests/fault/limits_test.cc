// A rank that reaches a limit of its process says so and is named by the others; nobody is killed,
// nobody else is blamed, and the log stays short.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/str.h"
#include "support/eventually.h"
#include "support/forked_ranks.h"
#include "support/sanitized.h"

namespace unisono {
namespace {

using test::reduce;

// Takes connections to all others, and new ones for each communicator.
std::string use_all(Communicator& communicator) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<float> input(ranks * 100, 1), output(ranks * 100);
  const auto status = communicator.all_to_all(input.data(), output.data(), 100, DataType::float32);
  if (!status.ok()) return status.error().describe();
  return reduce(communicator, 1000);
}

void limit(__rlimit_resource resource, rlim_t most) {
  const rlimit both{.rlim_cur = most, .rlim_max = most};
  ASSERT_EQ(setrlimit(resource, &both), 0);
}

rlim_t open_files() {
  const int next = dup(0);
  close(next);
  return static_cast<rlim_t>(next);
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

constexpr int victim = 1;

struct Shape {
  int ranks;
  const char* transport;
};
class Limits : public testing::TestWithParam<Shape> {
 protected:
  std::vector<test::Ended> run(const std::function<std::string(Communicator&)>& body,
                               const std::function<void(int)>& prepare) {
    return test::run_forked(GetParam().ranks, body, [&](int rank, InitOptions& options) {
      options.transport = GetParam().transport;
      // The others wait so long for one that cannot join.
      options.bootstrap_timeout = std::chrono::seconds(3);
      if (*GetParam().transport != '\0') options.node = str("node", rank);
      prepare(rank);
    });
  }
  // Each is right, or the victim says what it lacks, and others say that it is the victim.
  static void expect_victim(const std::vector<test::Ended>& ended, const char* limit) {
    for (std::size_t rank = 0; rank < ended.size(); ++rank) {
      const std::string& said = ended[rank].said;
      EXPECT_EQ(ended[rank].signal, 0) << "rank " << rank;
      EXPECT_EQ(ended[rank].exit_code, 0) << "rank " << rank << ": " << said;
      EXPECT_FALSE(has(said, "wrong")) << "rank " << rank;
      if (said.empty()) continue;
      if (static_cast<int>(rank) == victim)
        EXPECT_TRUE(has(said, "environment error") && has(said, limit)) << said;
      else
        EXPECT_TRUE(has(said, "(rank 1)")) << "rank " << rank << ": " << said;
    }
  }
};

TEST_P(Limits, TooFewDescriptorsFromTheBeginning) {
  if (test::is_sanitized) GTEST_SKIP() << "a sanitizer that looks at an object opens a pipe";
  for (rlim_t more : {0, 4, 8, 10, 12, 20}) {
    SCOPED_TRACE(str(more, " descriptors for rank ", victim));
    const auto begin = std::chrono::steady_clock::now();
    const auto ended = run(use_all, [&](int rank) {
      if (rank == victim) limit(RLIMIT_NOFILE, open_files() + more);
    });
    expect_victim(ended, "ulimit -n");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, test::deadline_of_calls);
  }
}

// All are gone when a communicator that has run makes new connections.
TEST_P(Limits, DescriptorsUsedUpLater) {
  std::string log_name = testing::TempDir() + "unisono-limits-XXXXXX";
  const int log = mkstemp(log_name.data());
  const auto ended = run(
      [](Communicator& communicator) -> std::string {
        if (auto status = communicator.barrier(); !status.ok())
          return "early: " + status.error().describe();
        if (communicator.rank() == victim) {
          limit(RLIMIT_NOFILE, 200);
          while (dup(0) >= 0);
        }
        for (int i = 0; i < 3; ++i) {
          if (auto wrong = use_all(communicator); !wrong.empty()) return wrong;
          auto part = communicator.split(0, communicator.rank());
          if (!part.ok()) return part.error().describe();
          if (auto wrong = use_all(*part); !wrong.empty()) return wrong;
        }
        return "it did without";
      },
      [&](int) { dup2(log, 2); });
  close(log);
  expect_victim(ended, "ulimit -n");
  std::ifstream lines(log_name);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count);
  EXPECT_LE(count, 8 * GetParam().ranks);
  unlink(log_name.c_str());
}

// All the addresses that this process may have, beyond those that it has.
void limit_addresses(rlim_t more) {
  std::ifstream sizes("/proc/self/statm");
  rlim_t pages = 0;
  sizes >> pages;
  limit(RLIMIT_AS, pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + more);
}

// Stacks of threads that have ended are used again: until none is left. They sleep until the
// process ends.
void use_up_threads() {
  try {
    for (;;) std::thread([] { pause(); }).detach();
  } catch (const std::system_error&) {
  }
}

// No thread can be had for asynchronous calls: its stack does not fit into the addresses left.
TEST_P(Limits, NoThreadForAsynchronousCalls) {
  if (test::is_sanitized) GTEST_SKIP() << "sanitizers need all addresses";
  int submitted[2];
  ASSERT_EQ(pipe(submitted), 0);
  const auto ended = run(
      [&](Communicator& communicator) -> std::string {
        if (auto wrong = use_all(communicator); !wrong.empty()) return "early: " + wrong;
        char none = 0;
        if (communicator.rank() != victim)
          return read(submitted[0], &none, 1) == 1 ? reduce(communicator, 1) : "no call";
        limit_addresses(4 << 20);
        use_up_threads();
        float value = 2;
        Call call;
        call.collective = Collective::all_reduce;
        call.input = call.output = &value;
        call.count = 1;
        auto work = communicator.submit(call);
        for (int other = 1; other < communicator.size(); ++other)
          if (write(submitted[1], &none, 1) != 1) return "no pipe";
        if (!work.ok()) return work.error().describe();
        const auto status = work->wait();
        if (auto destroyed = communicator.destroy(); !destroyed.ok())
          return destroyed.error().describe();
        return status.ok() ? std::string() : status.error().describe();
      },
      [](int) {});
  close(submitted[0]);
  close(submitted[1]);
  expect_victim(ended, "cannot start a thread");
  EXPECT_NE(ended[victim].said, "");
}

// Memory ends somewhere in calls that need more of it from one to the next.
TEST_P(Limits, NoMemory) {
  if (test::is_sanitized) GTEST_SKIP() << "sanitizers need all addresses";
  for (const rlim_t more : {64 << 10, 1 << 20, 8 << 20}) {
    SCOPED_TRACE(str(more, " bytes more for rank ", victim));
    const auto ended = run(
        [&](Communicator& communicator) -> std::string {
          std::vector<float> data(1 << 20, 1);
          if (auto status = communicator.barrier(); !status.ok())
            return "early: " + status.error().describe();
          if (communicator.rank() == victim) limit_addresses(more);
          for (const std::size_t elements : {1, 1000, 100'000, 1 << 20})
            for (int root = 0; root < communicator.size(); ++root) {
              const auto count = static_cast<std::int64_t>(elements);
              if (auto status = communicator.broadcast(data.data(), data.data(), count,
                                                       DataType::float32, root);
                  !status.ok())
                return status.error().describe();
              if (auto status =
                      communicator.all_reduce(data.data(), data.data(), count, DataType::float32);
                  !status.ok())
                return status.error().describe();
            }
          return {};
        },
        [](int) {});
    expect_victim(ended, "emory");
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Limits, testing::Values(Shape{3, ""}, Shape{3, "socket"}),
                         [](const auto& tested) {
                           return str("ranks", tested.param.ranks,
                                      *tested.param.transport == '\0' ? "shm" : "socket");
                         });

}  // namespace
}  // namespace unisono
