// What a forked process does with its parent's communicators: calls are misuse, and whatever else
// it does, and however it ends, the ranks never notice.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/str.h"
#include "support/eventually.h"
#include "support/forked_ranks.h"
#include "support/sanitized.h"

namespace unisono {
namespace {

using test::reduce;

std::string reduce_some(Communicator& communicator) {
  for (int round = 0; round < 5; ++round)
    for (const std::size_t elements : {1, 1000, 100'000})
      if (auto wrong = reduce(communicator, elements); !wrong.empty()) return wrong;
  return {};
}

// Forks a process that does `child` and then ends normally. "" when it did.
std::string fork_one(const std::function<bool()>& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(240);
    if (!child()) _exit(2);
    exit(0);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return str("the forked process ended with ", WIFSIGNALED(status) ? "signal " : "status ",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

bool is_refused(const Status& status) {
  return !status.ok() && status.error().kind == ErrorKind::misuse &&
         status.error().message.find("forked") != std::string::npos;
}

// Every way to use it, in a process that it does not belong to.
bool all_is_refused(Communicator& communicator, Work& pending) {
  double value = 1000000;
  const auto send = communicator.send(&value, 1, DataType::float64, 0);
  const auto receive = communicator.recv(&value, 1, DataType::float64, 0);
  Call call;
  call.collective = Collective::all_reduce;
  call.input = call.output = &value;
  call.count = 1;
  call.type = DataType::float64;
  const auto work = communicator.submit(call);
  const auto part = communicator.split(0, 0);
  const std::vector<int> excluded{1};
  const auto rest = communicator.shrink(excluded);
  const bool refused = is_refused(communicator.run(call)) && is_refused(communicator.barrier()) &&
                       is_refused(send) && is_refused(receive) && !work.ok() &&
                       work.error().message == receive.error().message && !part.ok() &&
                       !rest.ok() && is_refused(communicator.failure()) && pending.done() &&
                       pending.test() && is_refused(pending.wait()) &&
                       is_refused(pending.status()) &&
                       is_refused(pending.wait_for(std::chrono::hours(1)));
  static_cast<void>(communicator.memory());
  // The sanitizers' allocators may be locked for ever by a thread that the child has not got.
  if (!test::is_sanitized) static_cast<void>(communicator.dump_record());
  communicator.abort();
  return refused && communicator.destroy().ok() && value == 1000000;
}

struct Shape {
  int ranks;
  const char* transport;
};

// Sanitizers know nothing of a fork beside the thread that answers `unisono ras`.
const SettingValues without_thread{{"UNISONO_LIVE", "0"}};

class Forks : public testing::TestWithParam<Shape> {
 protected:
  void expect_right(const std::function<std::string(Communicator&)>& body) {
    const auto ended = test::run_forked(GetParam().ranks, body, [](int rank, InitOptions& options) {
      options.settings = without_thread;
      options.transport = GetParam().transport;
      if (*GetParam().transport != '\0') options.node = str("node", rank);
    });
    for (const test::Ended& rank : ended) {
      EXPECT_EQ(rank.said, "");
      EXPECT_EQ(rank.exit_code, 0);
    }
  }
};

TEST_P(Forks, AChildMayEndAsItLikes) {
  expect_right([](Communicator& communicator) -> std::string {
    if (auto wrong = reduce_some(communicator); !wrong.empty()) return wrong;
    const std::vector<std::function<bool()>> ways{[] { return true; },
                                                  [] {
                                                    _exit(0);
                                                    return false;
                                                  },
                                                  [&] {
                                                    const Communicator destroyed =
                                                        std::move(communicator);
                                                    return true;
                                                  },
                                                  [] {
                                                    execl("/bin/true", "true", nullptr);
                                                    return false;
                                                  }};
    for (const auto& way : ways) {
      if (auto wrong = fork_one(way); !wrong.empty()) return wrong;
      if (auto wrong = reduce_some(communicator); !wrong.empty()) return wrong;
    }
    return {};
  });
}

TEST_P(Forks, AChildsCallsAreRefused) {
  expect_right([](Communicator& communicator) -> std::string {
    if (auto wrong = reduce_some(communicator); !wrong.empty()) return wrong;
    // With a call under way, which the last rank joins later, and so with a progress thread.
    double value = communicator.rank() + 1;
    Call call;
    call.collective = Collective::all_reduce;
    call.input = call.output = &value;
    call.count = 1;
    call.type = DataType::float64;
    const bool is_late = communicator.rank() == communicator.size() - 1;
    Work work;
    if (!is_late) {
      auto submitted = communicator.submit(call);
      if (!submitted.ok()) return submitted.error().describe();
      work = *submitted;
      if (work.test()) return "it is complete without the last rank";
      const auto use = [&] {
        const bool is_refused = all_is_refused(communicator, work);
        // The search for leaks at an exit takes all locks of the allocator, of which the progress
        // thread, that the child has not got, may have held one.
        if (is_refused && test::is_sanitized) _exit(0);
        return is_refused;
      };
      if (auto wrong = fork_one(use); !wrong.empty()) return wrong;
      // The last rank comes when the others' children have ended.
      int done = 1;
      if (auto status = communicator.send(&done, 1, DataType::int32, communicator.size() - 1);
          !status.ok())
        return status.error().describe();
      if (auto status = work.wait(); !status.ok()) return status.error().describe();
    } else {
      for (int other = 0; other < communicator.size() - 1; ++other) {
        int done = 0;
        if (auto status = communicator.recv(&done, 1, DataType::int32, other); !status.ok())
          return status.error().describe();
      }
      if (auto status = communicator.run(call); !status.ok()) return status.error().describe();
    }
    const int ranks = communicator.size();
    if (value != ranks * (ranks + 1) / 2) return str("wrong: ", value);
    return reduce_some(communicator);
  });
}

// A child has communicators of its own beside its parent's.
TEST_P(Forks, AChildMakesItsOwn) {
  expect_right([](Communicator& communicator) -> std::string {
    if (auto wrong = reduce_some(communicator); !wrong.empty()) return wrong;
    const auto alone = [&] {
      InitOptions options;
      options.settings = without_thread;
      options.rank = 0;
      options.world_size = 1;
      auto own = Communicator::init(options);
      return own.ok() && reduce_some(*own).empty() && is_refused(communicator.barrier());
    };
    if (auto wrong = fork_one(alone); !wrong.empty()) return wrong;
    return reduce_some(communicator);
  });
}

// It waits for no mutex that a thread of its parent, which it has not got, held when it was forked.
TEST(Fork, AChildMakesItsOwnWhileTheThreadThatTellsLooks) {
  if (test::is_sanitized) GTEST_SKIP() << "a sanitizer's allocator may be locked in the child";
  const auto make = [] {
    InitOptions options;
    options.settings = {{"UNISONO_DUMP_SIGNAL", str(SIGUSR1)}};  // has the thread look
    options.rank = 0;
    options.world_size = 1;
    return Communicator::init(options);
  };
  // The more there are, the longer it holds what it looks at.
  std::vector<Communicator> own;
  for (int i = 0; i < 100; ++i) {
    auto made = make();
    ASSERT_TRUE(made.ok()) << made.error().describe();
    own.push_back(std::move(*made));
  }
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) kill(getpid(), SIGUSR1);
  });
  std::string wrong;
  for (int i = 0; i < 100 && wrong.empty(); ++i) wrong = fork_one([&] { return make().ok(); });
  done = true;
  other.join();
  EXPECT_EQ(wrong, "");
}

// What a child inherits must not keep its dead parent's connections open.
TEST_P(Forks, AChildThatLivesOnDoesNotHideItsParentsDeath) {
  int life[2];
  ASSERT_EQ(pipe(life), 0);
  const auto begin = std::chrono::steady_clock::now();
  const auto ended = test::run_forked(
      GetParam().ranks,
      [&](Communicator& communicator) -> std::string {
        if (auto wrong = reduce_some(communicator); !wrong.empty()) return "early " + wrong;
        if (communicator.rank() == 1) {
          if (fork() == 0) {
            close(life[1]);
            char none = 0;
            // It outlives the deadline of calls, so that only its parent's death can be noticed.
            alarm(240);
            _exit(static_cast<int>(read(life[0], &none, 1)));
          }
          kill(getpid(), SIGKILL);
        }
        std::string wrong;
        while (wrong.empty()) wrong = reduce_some(communicator);
        return wrong;
      },
      [](int rank, InitOptions& options) {
        options.settings = without_thread;
        options.transport = GetParam().transport;
        if (*GetParam().transport != '\0') options.node = str("node", rank);
      });
  close(life[0]);
  close(life[1]);
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    if (rank == 1) continue;
    EXPECT_EQ(ended[rank].said.rfind("peer error (rank 1)", 0), 0U) << ended[rank].said;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, test::deadline_of_calls);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Forks,
                         testing::Values(Shape{2, ""}, Shape{3, ""}, Shape{2, "socket"},
                                         Shape{3, "socket"}),
                         [](const auto& tested) {
                           return str("ranks", tested.param.ranks,
                                      *tested.param.transport == '\0' ? "shm" : "socket");
                         });

}  // namespace
}  // namespace unisono
