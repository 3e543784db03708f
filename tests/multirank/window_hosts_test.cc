// Windows between hosts, whose ranks are threads with host names of their own.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.h"

namespace unisono {
namespace {

using test::run_ranks;

class WindowsBetweenHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::can_name_hosts()) GTEST_SKIP() << "only root may give a thread a host name";
  }
};

void fence(Communicator& communicator) {
  for (int peer = 0; peer < communicator.size(); ++peer) {
    const Status flushed = communicator.flush(peer);
    ASSERT_TRUE(flushed.ok()) << flushed.error().describe();
  }
  ASSERT_TRUE(communicator.barrier().ok());
}

// Each rank puts to its slot in everybody's window, and gets everybody's slots.
TEST_F(WindowsBetweenHosts, HoldWhatEveryRankHasPut) {
  constexpr int ranks = 4;
  constexpr std::size_t most = 300'000;
  run_ranks({.ranks = ranks, .hosts = 2}, [](Communicator& communicator) {
    const int me = communicator.rank();
    std::vector<std::byte> memory(ranks * most);
    auto window = communicator.make_window(memory.data(), memory.size());
    ASSERT_TRUE(window.ok()) << window.error().describe();
    std::mt19937 draws(7);
    // Around what lies in a header, and of several pieces.
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{128}, std::size_t{129}, std::size_t{4097}, most}) {
      const auto value = static_cast<std::byte>(draws());
      const std::vector<std::byte> mine(bytes, value ^ static_cast<std::byte>(me));
      for (int peer = 0; peer < ranks; ++peer) {
        const std::size_t at = static_cast<std::size_t>(me) * most + draws() % (most - bytes + 1);
        ASSERT_TRUE(communicator.put(*window, mine.data(), bytes, peer, at).ok());
        std::vector<std::byte> got(bytes);
        const Status status = communicator.get(*window, got.data(), bytes, peer, at);
        ASSERT_TRUE(status.ok()) << status.error().describe();
        EXPECT_EQ(got, mine) << "rank " << me << " to " << peer;
      }
    }
    fence(communicator);
  });
}

TEST_F(WindowsBetweenHosts, SignalsComeBehindWhatWasPut) {
  constexpr int ranks = 3;
  constexpr int rounds = 100;
  run_ranks({.ranks = ranks, .hosts = 3}, [](Communicator& communicator) {
    const int me = communicator.rank();
    std::vector<std::uint64_t> memory(ranks * 40);
    auto window = communicator.make_window(memory.data(), memory.size() * sizeof(std::uint64_t));
    ASSERT_TRUE(window.ok());
    std::vector<SignalWait> all;
    for (int peer = 0; peer < ranks; ++peer) all.push_back({.peer = peer, .signal = 2});
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      const std::vector<std::uint64_t> mine(round % 2 == 0 ? 40 : 3, round);
      for (int peer = 0; peer < ranks; ++peer)
        ASSERT_TRUE(communicator
                        .put(*window, mine.data(), mine.size() * sizeof(std::uint64_t), peer,
                             static_cast<std::size_t>(me) * 40 * sizeof(std::uint64_t), 2)
                        .ok());
      const Status come = communicator.wait_signals(all);
      ASSERT_TRUE(come.ok()) << come.error().describe();
      for (std::size_t peer = 0; peer < ranks; ++peer)
        EXPECT_TRUE(
            std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(peer * 40),
                        memory.begin() + static_cast<std::ptrdiff_t>(peer * 40 + mine.size()),
                        [&](std::uint64_t word) { return word == round; }));
      for (int peer = 0; peer < ranks; ++peer) ASSERT_TRUE(communicator.signal(peer, 3).ok());
      std::vector<SignalWait> read = all;
      for (SignalWait& wait : read) wait.signal = 3;
      ASSERT_TRUE(communicator.wait_signals(read).ok());
    }
    EXPECT_FALSE(*communicator.test_signals(all));
  });
}

TEST_F(WindowsBetweenHosts, WordsAreChangedOneAfterAnother) {
  constexpr int ranks = 4;
  constexpr std::uint64_t changes = 150;
  run_ranks({.ranks = ranks, .hosts = 2}, [](Communicator& communicator) {
    std::array<std::uint64_t, 2> memory{};
    auto window = communicator.make_window(memory.data(), sizeof memory);
    ASSERT_TRUE(window.ok());
    // By ranks of the owner's host, of the other one, and by the owner, at the same time.
    std::vector<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < changes; ++i) {
      const auto before = communicator.change_word(*window, WordOperation::add, 1, 1, 8);
      ASSERT_TRUE(before.ok()) << before.error().describe();
      seen.push_back(*before);
    }
    fence(communicator);
    std::vector<std::uint64_t> all(ranks * changes);
    ASSERT_TRUE(communicator.all_gather(seen.data(), all.data(), changes, DataType::uint64).ok());
    std::ranges::sort(all);
    std::vector<std::uint64_t> expected(all.size());
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
  });
}

TEST_F(WindowsBetweenHosts, ManyThreadsOfARankShareOne) {
  constexpr int ranks = 2;
  constexpr int threads = 4;
  constexpr std::uint64_t turns = 60;
  run_ranks({.ranks = ranks, .hosts = 2}, [](Communicator& communicator) {
    std::array<std::uint64_t, threads> memory{};
    auto window = communicator.make_window(memory.data(), sizeof memory);
    ASSERT_TRUE(window.ok());
    const int other = 1 - communicator.rank();
    std::vector<std::thread> all;
    for (std::size_t thread = 0; thread < threads; ++thread)
      all.emplace_back([&, thread] {
        for (std::uint64_t turn = 1; turn <= turns; ++turn) {
          const std::size_t at = thread * sizeof turn;
          std::uint64_t got = 0;
          ASSERT_TRUE(communicator.put(*window, &turn, sizeof turn, other, at).ok());
          ASSERT_TRUE(communicator.get(*window, &got, sizeof got, other, at).ok());
          EXPECT_EQ(got, turn);
        }
      });
    for (std::thread& thread : all) thread.join();
    fence(communicator);
  });
}

TEST_F(WindowsBetweenHosts, NothingLandsOnceAWindowIsClosed) {
  run_ranks({.ranks = 2, .hosts = 2}, [](Communicator& communicator) {
    std::uint64_t memory = 1;
    auto window = communicator.make_window(&memory, sizeof memory);
    ASSERT_TRUE(window.ok());
    const int other = 1 - communicator.rank();
    ASSERT_TRUE(communicator.barrier().ok());
    if (communicator.rank() == 1) *window = Window();
    ASSERT_TRUE(communicator.barrier().ok());
    if (communicator.rank() == 0) {
      const std::uint64_t value = 7;
      ASSERT_TRUE(communicator.put(*window, &value, sizeof value, other, 0).ok());
      const Status flushed = communicator.flush(other);
      ASSERT_FALSE(flushed.ok());
      EXPECT_EQ(flushed.error().peer, 1);
      EXPECT_NE(flushed.error().message.find("has closed the window"), std::string::npos);
      std::uint64_t got = 0;
      EXPECT_FALSE(communicator.get(*window, &got, sizeof got, other, 0).ok());
      EXPECT_FALSE(communicator.change_word(*window, WordOperation::add, 1, other, 0).ok());
      EXPECT_TRUE(communicator.flush(other).ok()) << "each refusal is told once";
    }
    ASSERT_TRUE(communicator.barrier().ok());
    EXPECT_EQ(memory, 1U);
  });
}

// Gets from rank 1 until that fails.
void get_until_told(Communicator& communicator, const std::function<void()>& end) {
  std::uint64_t memory = 1;
  auto window = communicator.make_window(&memory, sizeof memory);
  ASSERT_TRUE(window.ok());
  fence(communicator);  // they are connected
  if (communicator.rank() == 1) {
    const SignalWait begins{.peer = 0};
    ASSERT_TRUE(communicator.wait_signals(std::span(&begins, 1)).ok());
    return end();
  }
  ASSERT_TRUE(communicator.signal(1, 0).ok());
  std::uint64_t got = 0;
  Status status;
  // A question from before it left may still be answered.
  while (status.ok()) status = communicator.get(*window, &got, sizeof got, 1, 0);
  EXPECT_EQ(status.error().peer, 1) << status.error().describe();
}

TEST_F(WindowsBetweenHosts, APeerThatAbortsIsNamed) {
  run_ranks({.ranks = 2, .hosts = 2}, [](Communicator& communicator) {
    get_until_told(communicator, [&] {
      communicator.abort();
      EXPECT_TRUE(communicator.destroy().ok());
    });
  });
}

TEST_F(WindowsBetweenHosts, APeerThatLeavesIsNamed) {
  run_ranks({.ranks = 2, .hosts = 2}, [](Communicator& communicator) {
    get_until_told(communicator, [&] { EXPECT_TRUE(communicator.destroy().ok()); });
  });
}

TEST_F(WindowsBetweenHosts, AWaitThatIsLateLeavesItsDestinationAlone) {
  run_ranks({.ranks = 2, .hosts = 2}, [](Communicator& communicator) {
    std::vector<std::byte> memory(1 << 20, std::byte{1});
    auto window = communicator.make_window(memory.data(), memory.size());
    ASSERT_TRUE(window.ok());
    const int other = 1 - communicator.rank();
    std::vector<std::byte> got(memory.size());
    const AccessOptions at_once{.timeout = std::chrono::nanoseconds(1)};
    const Status late = communicator.get(*window, got.data(), got.size(), other, 0, at_once);
    ASSERT_FALSE(late.ok());
    EXPECT_TRUE(late.error().timed_out);
    std::ranges::fill(got, std::byte{2});
    ASSERT_TRUE(communicator.flush(other).ok()) << "the answer has come before this one's";
    EXPECT_TRUE(std::ranges::all_of(got, [](std::byte byte) { return byte == std::byte{2}; }));
    ASSERT_TRUE(communicator.get(*window, got.data(), got.size(), other, 0).ok());
    EXPECT_EQ(got, memory);
    fence(communicator);
  });
}

TEST_F(WindowsBetweenHosts, TheirAddressesAreNotGiven) {
  run_ranks({.ranks = 2, .hosts = 2}, [](Communicator& communicator) {
    std::uint64_t memory = 1;
    auto window = communicator.make_window(&memory, sizeof memory);
    ASSERT_TRUE(window.ok());
    EXPECT_TRUE(window->pointer(communicator.rank(), 0).ok());
    const auto far = window->pointer(1 - communicator.rank(), 0);
    ASSERT_FALSE(far.ok());
    EXPECT_NE(far.error().message.find("use put and get"), std::string::npos);
    fence(communicator);
  });
}

}  // namespace
}  // namespace unisono
