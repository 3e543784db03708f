// The two ends as real processes: data across them, and an end that is killed.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "conformance/harness.h"

namespace unisono::test {
namespace {

class Processes : public testing::TestWithParam<Factory> {};

INSTANTIATE_TEST_SUITE_P(All, Processes,
                         testing::ValuesIn(factories_with(&Factory::across_processes)),
                         factory_name);

// Of transports that reach memory which the peer's process exposes, of those that get from it, and
// of those that read what it offers.
class ExposingProcesses : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, ExposingProcesses,
                         testing::ValuesIn(factories_with(&Factory::across_processes,
                                                          &Factory::puts_in_place)),
                         factory_name);

class GettingProcesses : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, GettingProcesses,
                         testing::ValuesIn(factories_with(&Factory::across_processes,
                                                          &Factory::gets)),
                         factory_name);

class ReadingProcesses : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, ReadingProcesses,
                         testing::ValuesIn(factories_with(&Factory::across_processes,
                                                          &Factory::reads_peer)),
                         factory_name);

constexpr Geometry geometry{.region_bytes = 1 << 20, .signals = 2};

// What a machine may refuse to shared memory, whose ends then say so; to no other transport.
bool is_refused(const Factory& factory, bool declares) {
  EXPECT_TRUE(declares || factory.needs_cross_memory);
  return !declares;
}
constexpr std::string_view no_cross_memory =
    "this machine does not let processes read and write each other's memory";

std::unique_ptr<Connection> connect_ready(Transport& transport, int self,
                                          const std::string& peer_address) {
  auto connection = must(transport.connect({.key = {.communicator = 5},
                                            .ranks = Job::ranks,
                                            .self = self,
                                            .peer = 1 - self,
                                            .peer_address = peer_address,
                                            .geometry = geometry}));
  const bool ready = eventually([&] {
    EXPECT_TRUE(transport.progress().ok());
    return is_ready(*connection);
  });
  EXPECT_TRUE(ready);
  return connection;
}

// Runs `child` as rank 1 in a process of its own; its exit status 0 is success. Either end has the
// other's address when it connects.
class ChildProcess {
 public:
  ChildProcess(const Factory& factory, const std::function<bool(Transport&, Connection&)>& child) {
    const std::string job = fresh_job();
    transport = must_make(factory, job);
    int pipe_ends[2];
    EXPECT_EQ(pipe(pipe_ends), 0);
    pid = fork();
    if (pid == 0) {
      auto own = must_make(factory, job);
      const std::string address = own->address();
      const auto length = static_cast<ssize_t>(address.size());
      bool good = write(pipe_ends[1], address.data(), address.size()) == length;
      close(pipe_ends[1]);
      auto end = connect_ready(*own, 1, transport->address());
      good = good && child(*own, *end) && !testing::Test::HasFailure();
      end.reset();
      own.reset();
      _exit(good ? 0 : 1);
    }
    close(pipe_ends[1]);
    char address[Transport::max_address_bytes];
    const ssize_t got = read(pipe_ends[0], address, sizeof address);
    close(pipe_ends[0]);
    EXPECT_GT(got, 0);
    connection = connect_ready(*transport, 0, {address, static_cast<std::size_t>(got)});
  }
  ~ChildProcess() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  // The transport goes on meanwhile: it may have to send what a connection left behind.
  int wait_status() {
    int status = -1;
    const bool ended = eventually([&] {
      EXPECT_TRUE(transport->progress().ok());
      return waitpid(pid, &status, WNOHANG) == pid;
    });
    EXPECT_TRUE(ended) << "the other process does not end";
    if (ended) pid = -1;
    return status;
  }

  std::unique_ptr<Transport> transport;
  std::unique_ptr<Connection> connection;
  pid_t pid = -1;

 private:
  static std::unique_ptr<Transport> must_make(const Factory& factory, const std::string& job) {
    auto made = factory.make(Job::options(job));
    EXPECT_TRUE(made.ok()) << made.error().describe();
    return std::move(*made);
  }
};

TEST_P(Processes, BytesGoThereAndBack) {
  constexpr std::uint64_t rounds = 300;
  const auto content_of = [](std::uint64_t round) {
    std::mt19937_64 random(round);
    return random_bytes(random, 1 + random_below(random, round % 20 == 0 ? 1 << 20 : 2000));
  };
  ChildProcess child(GetParam(), [&](Transport&, Connection& connection) {
    std::vector<std::byte> copy(geometry.region_bytes);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      if (!wait_for_signal(connection, 0, round)) return false;
      const std::size_t bytes = content_of(round).size();
      std::memcpy(copy.data(), region_of(connection), bytes);
      if (!put(connection, copy.data(), bytes, 0, {1, round})) return false;
      if (!wait_for_completion(connection)) return false;
    }
    return true;
  });
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    const auto content = content_of(round);
    // The last put alone signals.
    const std::size_t part = content.size() / 5;
    for (const std::size_t at : {3 * part, 0 * part, 2 * part, 1 * part})
      ASSERT_TRUE(put(*child.connection, content.data() + at, part, at));
    ASSERT_TRUE(put(*child.connection, content.data() + 4 * part, content.size() - 4 * part,
                    4 * part, {0, round}));
    ASSERT_TRUE(wait_for_signal(*child.connection, 1, round));
    ASSERT_TRUE(equal_bytes(region_of(*child.connection), content.data(), content.size())) << round;
    // The peer's answer tells that the source was read, but not by the rules.
    ASSERT_TRUE(wait_for_completion(*child.connection));
  }
  EXPECT_EQ(child.wait_status(), 0);
}

// Each end waits for the other's, and no put of bytes is behind them that would push them on.
TEST_P(Processes, SignalsWithoutBytesGoThereAndBack) {
  constexpr std::uint64_t rounds = 300, last = rounds + 1;
  const auto answer = [](Connection& connection, std::uint64_t value) {
    return wait_for_signal(connection, 0, value) && put(connection, nullptr, 0, 0, {1, value});
  };
  ChildProcess child(GetParam(), [&](Transport&, Connection& connection) {
    for (std::uint64_t round = 1; round <= rounds; ++round)
      if (!answer(connection, round)) return false;
    if (!wait_for_signal(connection, 0, last)) return false;
    return put(connection, "bytes", 5, 3, {1, last}) && wait_for_completion(connection);
  });
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    ASSERT_TRUE(put(*child.connection, nullptr, 0, 0, {0, round}));
    ASSERT_TRUE(wait_for_signal(*child.connection, 1, round));
  }
  ASSERT_TRUE(wait_for_completion(*child.connection));
  ASSERT_TRUE(put(*child.connection, nullptr, 0, 0, {0, last}));
  ASSERT_TRUE(wait_for_signal(*child.connection, 1, last));
  EXPECT_TRUE(equal_bytes(region_of(*child.connection) + 3, "bytes", 5));
  EXPECT_EQ(child.wait_status(), 0);
}

TEST_P(ReadingProcesses, OfferedMemoryIsReadAcross) {
  ChildProcess child(GetParam(), [&](Transport&, Connection& connection) {
    std::mt19937_64 random(3);
    const auto offered = random_bytes(random, 3'000'001);
    const auto address = reinterpret_cast<std::uint64_t>(offered.data());
    if (!put(connection, &address, sizeof address, 0, {0, 1})) return false;
    if (!wait_for_completion(connection)) return false;
    return static_cast<bool>(wait_for_signal(connection, 0, 1));
  });
  ASSERT_TRUE(wait_for_signal(*child.connection, 0, 1));
  if (is_refused(GetParam(), child.connection->can_read_peer())) GTEST_SKIP() << no_cross_memory;
  std::mt19937_64 random(3);
  const auto expected = random_bytes(random, 3'000'001);
  std::uint64_t address = 0;
  std::memcpy(&address, region_of(*child.connection), sizeof address);
  std::vector<std::byte> got(expected.size());
  const auto status = child.connection->read_peer(got.data(), address, got.size());
  EXPECT_TRUE(status.ok()) << status.error().describe();
  EXPECT_EQ(got, expected);
  // Memory that is not there is an error and not a crash.
  const auto refused = child.connection->read_peer(got.data(), 4096, got.size());
  EXPECT_FALSE(refused.ok());
  ASSERT_TRUE(put(*child.connection, nullptr, 0, 0, {0, 1}));
  EXPECT_TRUE(wait_for_completion(*child.connection));
  EXPECT_EQ(child.wait_status(), 0);
}

TEST_P(ExposingProcesses, PutsLandInExposedMemoryAcross) {
  constexpr std::size_t bytes = 3'000'001;
  ChildProcess child(GetParam(), [&](Transport&, Connection& connection) {
    std::vector<std::byte> memory(bytes);
    const RemoteMemory exposed = must_expose(connection, memory);
    if (!put(connection, &exposed, sizeof exposed, 0, {0, 1})) return false;
    if (!wait_for_completion(connection) || !wait_for_signal(connection, 0, 1)) return false;
    std::mt19937_64 random(4);
    return memory == random_bytes(random, bytes);
  });
  ASSERT_TRUE(wait_for_signal(*child.connection, 0, 1));
  if (is_refused(GetParam(), child.connection->puts_in_place())) GTEST_SKIP() << no_cross_memory;
  std::mt19937_64 random(4);
  const auto source = random_bytes(random, bytes);
  RemoteMemory exposed;
  std::memcpy(&exposed, region_of(*child.connection), sizeof exposed);
  ASSERT_TRUE(put_to(*child.connection, exposed, 0, source.data(), bytes, {0, 1}));
  ASSERT_TRUE(wait_for_completion(*child.connection));
  EXPECT_EQ(child.wait_status(), 0);
}

// Exposes memory to a process that reaches for all of it again and again until it fails, withdraws
// it in the middle and uses it for something else. Runs the child with what it reaches for.
class OfWithdrawnMemory {
 public:
  static constexpr std::size_t bytes = 8 << 20, stride = 4'096;
  static constexpr std::byte at_first{7}, later{9};

  // reach(connection, memory, own) tries once; is_good(own) is asked at the end.
  template <class Reach, class IsGood>
  OfWithdrawnMemory(const Factory& factory, const Reach& reach, const IsGood& is_good)
      : child(factory, [&](Transport&, Connection& connection) {
          if (!wait_for_signal(connection, 0, 1)) return false;
          RemoteMemory exposed;
          std::memcpy(&exposed, region_of(connection), sizeof exposed);
          std::vector<std::byte> own(bytes, at_first);
          std::uint64_t tries = 0;
          // One under way at a time.
          until_error([&]() -> Status {
            if (connection.puts_completed() == connection.puts_started() &&
                connection.gets_completed() == connection.gets_started()) {
              Result<bool> taken = reach(connection, exposed, own);
              if (taken.ok()) taken = connection.try_put(nullptr, 0, 0, {1, ++tries});
              if (!taken.ok()) return taken.take_error();
            }
            return connection.progress();
          });
          connection.abort({Fault::Kind::aborted, 1});
          return is_good(own);
        }) {}
  // Withdraws it at another moment in each round, once the child has tried.
  void withdraw(int round, std::byte before) {
    std::ranges::fill(memory, before);
    Connection& end = *child.connection;
    const RemoteMemory exposed = must_expose(end, memory);
    ASSERT_TRUE(put(end, &exposed, sizeof exposed, 0, {0, 1}));
    ASSERT_TRUE(wait_for_signal(end, 1, 1));
    for (int looks = 0; looks < 50 * round; ++looks) {
      ASSERT_TRUE(end.progress().ok());
      std::this_thread::yield();
    }
    end.withdraw(exposed);
    // In so few places that it is done before the end of a copy that is under way.
    for (std::size_t place = 0; place < bytes; place += stride) memory[place] = later;
    until_error([&] { return end.check_peer(); });
    child.connection.reset();
    EXPECT_EQ(child.wait_status(), 0);
  }

  std::vector<std::byte> memory = std::vector<std::byte>(bytes);
  ChildProcess child;
};

TEST_P(ExposingProcesses, NothingLandsAfterWithdrawal) {
  for (int round = 0; round < 8; ++round) {
    OfWithdrawnMemory withdrawn(
        GetParam(),
        [](Connection& end, const RemoteMemory& memory, std::span<std::byte> own) {
          return end.try_put_to(memory, 0, own.data(), own.size(), {});
        },
        [](std::span<const std::byte>) { return true; });
    const bool reaches = withdrawn.child.connection->puts_in_place();
    if (is_refused(GetParam(), reaches)) GTEST_SKIP() << no_cross_memory;
    withdrawn.withdraw(round, std::byte{0});
    EXPECT_EQ(std::ranges::count(withdrawn.memory, withdrawn.later),
              withdrawn.bytes / withdrawn.stride)
        << round;
  }
}

TEST_P(GettingProcesses, NothingIsReadAfterWithdrawal) {
  for (int round = 0; round < 8; ++round) {
    OfWithdrawnMemory withdrawn(
        GetParam(),
        [](Connection& end, const RemoteMemory& memory, std::span<std::byte> own) {
          return end.try_get(memory, 0, own.data(), own.size());
        },
        [](std::span<const std::byte> own) {
          return std::ranges::count(own, OfWithdrawnMemory::later) == 0;
        });
    if (is_refused(GetParam(), withdrawn.child.connection->can_get()))
      GTEST_SKIP() << no_cross_memory;
    withdrawn.withdraw(round, withdrawn.at_first);
  }
}

// A peer that is stopped while it puts into this end's memory holds up a withdrawal only so
// long. Where a put was in the middle and may end later, the connection has failed; else nothing
// lands once the peer goes on.
TEST_P(ExposingProcesses, WithdrawalFromAStoppedPeerEnds) {
  constexpr std::size_t bytes = 64 << 20;
  std::vector<std::byte> memory(bytes);
  ChildProcess child(GetParam(), [&](Transport&, Connection& connection) {
    if (!wait_for_signal(connection, 0, 1)) return false;
    RemoteMemory exposed;
    std::memcpy(&exposed, region_of(connection), sizeof exposed);
    const std::vector<std::byte> source(bytes);
    // One under way at a time.
    do {
      if (connection.puts_completed() == connection.puts_started() &&
          !connection.try_put_to(exposed, 0, source.data(), bytes, {1, 1}).ok())
        break;
    } while (connection.progress().ok());
    return true;
  });
  if (is_refused(GetParam(), child.connection->puts_in_place())) GTEST_SKIP() << no_cross_memory;
  const RemoteMemory exposed = must_expose(*child.connection, memory);
  ASSERT_TRUE(put(*child.connection, &exposed, sizeof exposed, 0, {0, 1}));
  ASSERT_TRUE(wait_for_completion(*child.connection));
  ASSERT_TRUE(wait_for_signal(*child.connection, 1, 1));
  constexpr std::byte after{9};
  kill(child.pid, SIGSTOP);
  const auto begun = std::chrono::steady_clock::now();
  child.connection->withdraw(exposed);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(60));
  std::ranges::fill(memory, after);
  const Status state = child.connection->progress();
  kill(child.pid, SIGCONT);
  if (!state.ok()) {
    EXPECT_EQ(state.error().peer, 1) << state.error().describe();
    child.connection->abort({Fault::Kind::aborted, 0});
    return;
  }
  until_error([&] { return child.connection->check_peer(); });
  child.connection.reset();
  EXPECT_EQ(child.wait_status(), 0);
  EXPECT_EQ(std::ranges::count(memory, after), bytes);
}

TEST_P(GettingProcesses, ExposedMemoryIsGotAcrossAndADeathInTheMiddleIsNamed) {
  constexpr std::size_t bytes = 3'000'001;
  std::mt19937_64 random(5);
  auto content = random_bytes(random, bytes);
  ChildProcess child(GetParam(), [&](Transport&, Connection& connection) {
    const RemoteMemory exposed = must_expose(connection, content);
    if (!put(connection, &exposed, sizeof exposed, 0, {0, 1})) return false;
    return eventually([&] { return !connection.progress().ok(); });
  });
  ASSERT_TRUE(wait_for_signal(*child.connection, 0, 1));
  if (is_refused(GetParam(), child.connection->can_get())) GTEST_SKIP() << no_cross_memory;
  RemoteMemory exposed;
  std::memcpy(&exposed, child.connection->region(), sizeof exposed);
  std::vector<std::byte> destination(bytes);
  const auto get = [&]() -> Status {
    auto taken = child.connection->try_get(exposed, 0, destination.data(), bytes);
    if (!taken.ok()) return taken.take_error();
    return child.connection->check_peer();
  };
  ASSERT_TRUE(get().ok());
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(child.connection->progress().ok());
    return child.connection->gets_completed() == 1;
  }));
  EXPECT_EQ(destination, content);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(get().ok());
  kill(child.pid, SIGKILL);
  const Error told = until_error(get);
  EXPECT_EQ(told.kind, ErrorKind::peer) << told.describe();
  EXPECT_EQ(told.peer, 1) << told.describe();
}

// Memory that has gone though it is exposed is an error for who reaches for it.
class OfUnmappedMemory {
 public:
  explicit OfUnmappedMemory(const Factory& factory)
      : child(factory, [](Transport&, Connection& connection) {
          // A sanitizer would end it by an exit status instead.
          for (const int number : {SIGSEGV, SIGBUS}) signal(number, SIG_DFL);
          void* gone =
              mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
          const RemoteMemory exposed =
              must_expose(connection, std::span(static_cast<std::byte*>(gone), bytes));
          munmap(gone, bytes);
          if (!put(connection, &exposed, sizeof exposed, 0, {0, 1})) return false;
          // One of the two ends finds out, maybe before this put is complete.
          return eventually([&] {
            return !connection.progress().ok() || !connection.check_peer().ok() ||
                   signals_of(connection)[0].load(std::memory_order_acquire) == 1;
          });
        }) {}
  // Calls reach(memory), which tries once.
  template <class Reach>
  void is_an_error(Reach reach) {
    ASSERT_TRUE(wait_for_signal(*child.connection, 0, 1));
    RemoteMemory exposed;
    std::memcpy(&exposed, region_of(*child.connection), sizeof exposed);
    const Error told = until_error([&]() -> Status {
      auto taken = reach(exposed);
      if (!taken.ok()) return taken.take_error();
      return child.connection->check_peer();
    });
    EXPECT_EQ(told.kind, ErrorKind::peer) << told.describe();
    EXPECT_EQ(told.peer, 1) << told.describe();
    child.connection->abort({Fault::Kind::aborted, 0});
    // Its owner may have ended by a signal, but not by its deadline.
    const int status = child.wait_status();
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << status;
  }

  static constexpr std::size_t bytes = 1 << 20;
  ChildProcess child;
};

TEST_P(ExposingProcesses, AMemoryThatWasUnmappedIsAnError) {
  OfUnmappedMemory unmapped(GetParam());
  const bool reaches = unmapped.child.connection->puts_in_place();
  if (is_refused(GetParam(), reaches)) GTEST_SKIP() << no_cross_memory;
  const std::vector<std::byte> source(unmapped.bytes);  // until the abort: a put reads it that long
  unmapped.is_an_error([&](const RemoteMemory& memory) {
    return unmapped.child.connection->try_put_to(memory, 0, source.data(), source.size(), {});
  });
}

TEST_P(GettingProcesses, AMemoryThatWasUnmappedIsAnError) {
  OfUnmappedMemory unmapped(GetParam());
  const bool reaches = unmapped.child.connection->can_get();
  if (is_refused(GetParam(), reaches)) GTEST_SKIP() << no_cross_memory;
  std::vector<std::byte> destination(unmapped.bytes);
  unmapped.is_an_error([&](const RemoteMemory& memory) {
    return unmapped.child.connection->try_get(memory, 0, destination.data(), destination.size());
  });
  EXPECT_EQ(unmapped.child.connection->gets_completed(), 0u);
}

TEST_P(Processes, AKilledPeerIsNamed) {
  ChildProcess child(GetParam(), [&](Transport&, Connection& connection) {
    if (!put(connection, "last words", 10, 3, {0, 1})) return false;
    if (!wait_for_completion(connection)) return false;
    return static_cast<bool>(wait_for_signal(connection, 0, 1));
  });
  ASSERT_TRUE(wait_for_signal(*child.connection, 0, 1));
  for (int i = 0; i < 50; ++i) {
    const auto status = child.connection->check_peer();
    ASSERT_TRUE(status.ok()) << status.error().describe();
  }
  kill(child.pid, SIGKILL);
  const Error told = until_error([&] { return child.connection->check_peer(); });
  EXPECT_EQ(told.kind, ErrorKind::peer);
  EXPECT_EQ(told.peer, 1);
  EXPECT_NE(told.message.find("failed"), std::string::npos) << told.message;
  EXPECT_TRUE(equal_bytes(region_of(*child.connection) + 3, "last words", 10));
}

// As one that leaves: what it put can be looked for between the two looks that see its end.
TEST_P(Processes, AKilledPeerIsToldByTheSecondLook) {
  ChildProcess child(GetParam(), [&](Transport&, Connection& connection) {
    if (!put(connection, nullptr, 0, 0, {0, 1})) return false;
    return static_cast<bool>(wait_for_signal(connection, 0, 1));
  });
  ASSERT_TRUE(wait_for_signal(*child.connection, 0, 1));
  kill(child.pid, SIGKILL);
  child.wait_status();
  const auto first = child.connection->check_peer();
  EXPECT_TRUE(first.ok()) << first.error().describe();
  const Error told = until_error([&] { return child.connection->check_peer(); });
  EXPECT_EQ(told.peer, 1) << told.describe();
}

TEST_P(Processes, AFaultGoesAcross) {
  ChildProcess child(GetParam(), [&](Transport&, Connection& connection) {
    if (!wait_for_signal(connection, 0, 1)) return false;
    connection.abort({Fault::Kind::failed, 9});
    return true;
  });
  ASSERT_TRUE(put(*child.connection, nullptr, 0, 0, {0, 1}));
  const Error told = until_error([&] { return child.connection->progress(); });
  EXPECT_EQ(told.peer, 9);
  EXPECT_EQ(child.wait_status(), 0);
}

}  // namespace
}  // namespace unisono::test
