// Ranks where shared memory is little, or is used up by another program: calls are right or end
// with a sentence that helps, and nobody is killed.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/str.h"
#include "support/forked_ranks.h"
#include "support/sanitized.h"
#include "sys/shared_memory.h"

namespace unisono {
namespace {

// A file system of that size at /dev/shm, which only this thread and its children see, as long as
// the object lives.
class SmallSharedMemory {
 public:
  static std::optional<SmallSharedMemory> mount(std::size_t bytes) {
    const int before = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (before < 0 || unshare(CLONE_NEWNS) != 0) return std::nullopt;
    SmallSharedMemory made(before);
    const std::string size = str("size=", bytes, ",mode=1777");
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", "/dev/shm", "tmpfs", 0, size.c_str()) != 0)
      return std::nullopt;
    return made;
  }
  SmallSharedMemory(SmallSharedMemory&& other) noexcept
      : before_(std::exchange(other.before_, -1)) {}
  ~SmallSharedMemory() {
    if (before_ < 0) return;
    EXPECT_EQ(setns(before_, CLONE_NEWNS), 0) << std::strerror(errno);
    close(before_);
  }

 private:
  explicit SmallSharedMemory(int before) : before_(before) {}
  int before_;
};

using test::reduce;

// Every rank is right, or says that memory is missing, or names one that does.
void expect_right_or_named(const std::vector<test::Ended>& ranks) {
  bool failed = false;
  bool is_said = false;
  for (const test::Ended& rank : ranks) {
    EXPECT_EQ(rank.signal, 0);
    EXPECT_EQ(rank.exit_code, 0) << rank.said;
    EXPECT_EQ(rank.said.find("wrong"), std::string::npos);
    EXPECT_EQ(rank.said.find("timeout"), std::string::npos) << rank.said;
    failed |= !rank.said.empty();
    if (rank.said.find("environment error") == std::string::npos) continue;
    is_said = true;
    for (const char* part :
         {"/dev/shm is full", "needed", "--shm-size", "UNISONO_TRANSPORT=socket"})
      EXPECT_NE(rank.said.find(part), std::string::npos) << rank.said;
  }
  EXPECT_EQ(failed, is_said);
}

std::size_t random_elements(int rank_seed, std::size_t most) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank_seed));
  return 1 + random() % most;
}

constexpr std::size_t large = test::is_sanitized ? 100'000 : 2'000'000;

struct Shape {
  int ranks;
  std::size_t bytes;
};
class FewSharedMemory : public testing::TestWithParam<Shape> {};

TEST_P(FewSharedMemory, IsAnErrorAndNoSignal) {
  const auto memory = SmallSharedMemory::mount(GetParam().bytes);
  if (!memory) GTEST_SKIP() << "a file system cannot be mounted here: " << std::strerror(errno);
  const int seed = static_cast<int>(std::random_device{}());
  SCOPED_TRACE(str("seed ", seed));
  const auto ended = test::run_forked(GetParam().ranks, [&](Communicator& communicator) {
    for (int round = 0; round < 4; ++round) {
      if (auto wrong = reduce(communicator, random_elements(seed + round, 1000)); !wrong.empty())
        return wrong;
      if (auto wrong = reduce(communicator, large); !wrong.empty()) return wrong;
    }
    return std::string();
  });
  expect_right_or_named(ended);
}

INSTANTIATE_TEST_SUITE_P(Shapes, FewSharedMemory,
                         testing::Values(Shape{2, 4 << 10}, Shape{2, 40 << 10}, Shape{2, 1 << 20},
                                         Shape{4, 300 << 10}, Shape{4, 2 << 20}, Shape{8, 2 << 20},
                                         Shape{8, 64 << 20}),
                         [](const auto& tested) {
                           return str("ranks", tested.param.ranks, "with", tested.param.bytes >> 10,
                                      "KiB");
                         });

// The memory that Docker gives is enough for calls of 8 ranks.
TEST(DockersSharedMemory, SufficesForEightRanks) {
  const auto memory = SmallSharedMemory::mount(64 << 20);
  if (!memory) GTEST_SKIP() << "a file system cannot be mounted here: " << std::strerror(errno);
  const auto ended =
      test::run_forked(8, [&](Communicator& communicator) { return reduce(communicator, large); });
  for (const test::Ended& rank : ended) EXPECT_EQ(rank.said, "");
}

// Rank 0 stands for another program: it takes all that is left once calls have run.
TEST(UsedUpSharedMemory, LeavesRanksRightOrWithAnError) {
  const auto memory = SmallSharedMemory::mount(64 << 20);
  if (!memory) GTEST_SKIP() << "a file system cannot be mounted here: " << std::strerror(errno);
  for (const int ranks : {2, 4}) {
    const auto ended = test::run_forked(ranks, [&](Communicator& communicator) {
      // Enough calls that each slot has been used, and has its memory.
      constexpr int rounds = 100;
      for (int round = 0; round < rounds; ++round)
        if (auto wrong = reduce(communicator, 500); !wrong.empty()) return "early: " + wrong;
      if (communicator.rank() == 0) {
        const int file = open("/dev/shm/another-program", O_CREAT | O_RDWR, 0600);
        const std::vector<char> page(4096, 'x');
        while (write(file, page.data(), page.size()) == static_cast<ssize_t>(page.size()));
        close(file);
      }
      for (int round = 0; round < rounds; ++round)
        if (auto wrong = reduce(communicator, 500); !wrong.empty()) return "early: " + wrong;
      return reduce(communicator, large);
    });
    expect_right_or_named(ended);
    unlink("/dev/shm/another-program");
    for (const test::Ended& rank : ended) {
      EXPECT_EQ(rank.said.find("early"), std::string::npos) << rank.said;
      EXPECT_NE(rank.said, "");
    }
  }
}

// Names of a start that did not end well, in a /dev/shm that no other test shares.
class NamesOfStarts : public testing::Test {
 protected:
  void SetUp() override {
    if (!memory_) GTEST_SKIP() << "a file system cannot be mounted here: " << std::strerror(errno);
  }
  static std::vector<std::string> names() { return sys::SharedMemory::names(""); }
  // What a process makes that lives until it is told to end.
  static pid_t hold(const std::string& name) {
    std::array<int, 2> ready{};
    EXPECT_EQ(pipe(ready.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto made = sys::SharedMemory::open_for_handshake(name, 4096, 4096);
      static_cast<void>(write(ready[1], made.ok() ? "y" : "n", 1));
      pause();
      _exit(1);
    }
    char answer = 0;
    EXPECT_EQ(read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    close(ready[0]);
    close(ready[1]);
    return child;
  }
  static void end(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }

  const std::optional<SmallSharedMemory> memory_ = SmallSharedMemory::mount(64 << 20);
};

TEST_F(NamesOfStarts, AStartThatFailsLeavesNone) {
  for (const char* transport : {"shm", "socket"}) {
    const auto ended = test::run_forked(
        3, [](Communicator&) { return std::string("joined"); },
        [&](int, InitOptions& options) {
          options.transport = transport;
          options.settings = {{"UNISONO_ALGORITHM", "no_such_algorithm:x"}};
        });
    for (const test::Ended& rank : ended) {
      EXPECT_NE(rank.said, "joined");
      EXPECT_NE(rank.said.find("no_such_algorithm"), std::string::npos) << rank.said;
    }
    EXPECT_EQ(names(), std::vector<std::string>()) << transport;
  }
}

TEST_F(NamesOfStarts, OneThatWasKilledIsRemovedByTheNextAndALivingOneStays) {
  const std::string dead = str(sys::handshake_prefix, "page-dead");
  const std::string living = str(sys::handshake_prefix, "page-living");
  end(hold(dead));
  const pid_t holder = hold(living);
  // The holder has swept already; another process dies.
  end(hold(dead));
  EXPECT_EQ(names().size(), 2U);
  const auto ended = test::run_forked(
      2, [&](Communicator& communicator) { return reduce(communicator, 1000); },
      [](int, InitOptions& options) { options.has_signals = true; });
  for (const test::Ended& rank : ended) EXPECT_EQ(rank.said, "");
  EXPECT_EQ(names(), std::vector<std::string>{living});
  end(holder);
  sys::SharedMemory::remove_ended_handshakes();
  EXPECT_EQ(names(), std::vector<std::string>());
}

}  // namespace
}  // namespace unisono
