// Windows and signals in host memory, suspension, and tags of calls.

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "support/ranks.h"

namespace unisono {
namespace {

using test::run_ranks;

TEST(Windows, OfEveryRankAreReachedFromEveryRank) {
  // On two virtual nodes of one host.
  run_ranks({.ranks = 4, .nodes = 2, .has_signals = true}, [](Communicator& communicator) {
    const int rank = communicator.rank();
    std::vector<int> memory(4, -1);
    auto window = communicator.make_window(memory.data(), memory.size() * sizeof(int));
    ASSERT_TRUE(window.ok()) << window.error().describe();
    EXPECT_EQ(window->data(), memory.data());
    for (int peer = 0; peer < 4; ++peer)
      ASSERT_TRUE(communicator
                      .put(*window, &rank, sizeof rank, peer,
                           static_cast<std::size_t>(rank) * sizeof(int), 63)
                      .ok());
    for (int peer = 0; peer < 4; ++peer) {
      const SignalWait wait{.peer = peer, .signal = 63};
      const Status taken = communicator.wait_signals(std::span(&wait, 1));
      ASSERT_TRUE(taken.ok()) << taken.error().describe();
    }
    EXPECT_EQ(memory, (std::vector<int>{0, 1, 2, 3}));
    const SignalWait more{.peer = 0, .signal = 63};
    const auto again = communicator.test_signals(std::span(&more, 1));
    ASSERT_TRUE(again.ok());
    EXPECT_FALSE(*again);
    EXPECT_TRUE(communicator.barrier().ok());
  });
}

TEST(Windows, AreReadAndTheirWordsChanged) {
  constexpr int ranks = 3;
  constexpr std::uint64_t rounds = 200;
  run_ranks({.ranks = ranks}, [](Communicator& communicator) {
    const auto rank = static_cast<std::uint64_t>(communicator.rank());
    std::vector<std::uint64_t> memory{rank, 0, 0};
    auto window = communicator.make_window(memory.data(), 3 * sizeof(std::uint64_t));
    ASSERT_TRUE(window.ok()) << window.error().describe();
    for (int peer = 0; peer < ranks; ++peer) {
      std::uint64_t got = UINT64_MAX;
      ASSERT_TRUE(communicator.get(*window, &got, sizeof got, peer, 0).ok());
      EXPECT_EQ(got, static_cast<std::uint64_t>(peer));
      EXPECT_EQ(*window->bytes_of(peer), 3 * sizeof(std::uint64_t));
    }
    std::uint64_t last = 0;
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const auto before = communicator.change_word(*window, WordOperation::add, 1, 0, 8);
      ASSERT_TRUE(before.ok()) << before.error().describe();
      EXPECT_TRUE(i == 0 || *before > last) << "each value is given once";
      last = *before;
    }
    EXPECT_TRUE(communicator.flush(0).ok());
    ASSERT_TRUE(communicator.barrier().ok());
    EXPECT_EQ(*communicator.change_word(*window, WordOperation::add, 0, 0, 8), ranks * rounds);
    if (rank == 1) {
      EXPECT_EQ(*communicator.change_word(*window, WordOperation::compare_and_swap, 5, 2, 16, 1),
                0U);
      EXPECT_EQ(*communicator.change_word(*window, WordOperation::compare_and_swap, 5, 2, 16, 0),
                0U);
      EXPECT_EQ(*communicator.change_word(*window, WordOperation::swap, 6, 2, 16), 5U);
    }
    ASSERT_TRUE(communicator.barrier().ok());
    EXPECT_EQ(memory[2], rank == 2 ? 6U : 0U);
    ASSERT_TRUE(communicator.barrier().ok());
  });
}

TEST(Windows, AWordThatIsNotAlignedIsRefused) {
  run_ranks({.ranks = 2}, [](Communicator& communicator) {
    alignas(8) std::array<std::byte, 32> memory{};
    // One rank's part begins in the middle of a word.
    const std::size_t skipped = communicator.rank() == 1 ? 4 : 0;
    auto window = communicator.make_window(memory.data() + skipped, 24);
    ASSERT_TRUE(window.ok());
    const auto aligned = communicator.change_word(*window, WordOperation::add, 1, 1, 4);
    EXPECT_TRUE(aligned.ok());
    for (const std::size_t offset : {0, 2, 8}) {
      const auto wrong = communicator.change_word(*window, WordOperation::add, 1, 1, offset);
      ASSERT_FALSE(wrong.ok());
      EXPECT_NE(wrong.error().message.find("no multiple of 8"), std::string::npos);
    }
    EXPECT_FALSE(communicator.change_word(*window, WordOperation::add, 1, 0, 17).ok());
    EXPECT_FALSE(communicator.change_word(*window, WordOperation::add, 1, 0, 24).ok());
    std::byte byte{};
    const Status outside = communicator.get(*window, &byte, 1, 1, 24);
    ASSERT_FALSE(outside.ok());
    EXPECT_NE(outside.error().message.find("which has 24 bytes"), std::string::npos);
    EXPECT_FALSE(communicator.flush(2).ok());
    EXPECT_TRUE(communicator.barrier().ok());
  });
}

TEST(Windows, WhatIsWrongWithAPutIsTold) {
  run_ranks({.ranks = 2}, [](Communicator& communicator) {
    int memory = 0;
    const int value = 1;
    auto window = communicator.make_window(&memory, sizeof memory);
    auto halves = communicator.split(0, communicator.rank());
    ASSERT_TRUE(window.ok() && halves.ok());
    const Status foreign = halves->put(*window, &value, sizeof value, 0, 0);
    ASSERT_FALSE(foreign.ok());
    EXPECT_NE(foreign.error().message.find("was not made by communicator"), std::string::npos);
    const Status outside = communicator.put(*window, &value, sizeof value, 1, 1);
    ASSERT_FALSE(outside.ok());
    EXPECT_NE(outside.error().message.find("bytes 1 to 5"), std::string::npos);
    const Status huge = communicator.put(*window, &value, SIZE_MAX, 1, 2);
    EXPECT_FALSE(huge.ok());
    const Status signal = halves->signal(1, 0);
    ASSERT_FALSE(signal.ok());
    EXPECT_NE(signal.error().message.find("has_signals"), std::string::npos);
    EXPECT_EQ(memory, 0);
    EXPECT_TRUE(communicator.barrier().ok());
  });
}

TEST(Windows, RanksThatDisagreeOnSignalsAreTold) {
  const test::Rendezvous rendezvous;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      InitOptions options;
      options.rank = rank;
      options.world_size = 2;
      options.rendezvous = rendezvous.url();
      options.has_signals = rank == 0;
      auto made = Communicator::init(options);
      ASSERT_FALSE(made.ok());
      EXPECT_NE(made.error().message.find("signals"), std::string::npos) << made.error().describe();
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Windows, AWaitForSignalsNamesWhoIsMissing) {
  run_ranks({.ranks = 2, .has_signals = true}, [](Communicator& communicator) {
    const int own = communicator.rank();
    // The first of the two has come.
    ASSERT_TRUE(communicator.signal(own, 0).ok());
    const SignalWait waits[] = {{.peer = own}, {.peer = 1 - own}};
    const Status taken =
        communicator.wait_signals(waits, {.timeout = std::chrono::milliseconds(50)});
    ASSERT_FALSE(taken.ok());
    EXPECT_TRUE(taken.error().timed_out);
    EXPECT_EQ(taken.error().peer, 1 - communicator.rank());
    EXPECT_TRUE(communicator.barrier().ok()) << "the communicator is as good as before";
  });
}

// No call tells this rank of it, and no thread that answers questions from outside.
TEST(Windows, AWaitForSignalsEndsWhereItsCommunicatorIsAborted) {
  run_ranks({.ranks = 3, .has_signals = true, .settings = {{"UNISONO_LIVE", "0"}}},
            [](Communicator& communicator) {
              if (communicator.rank() == 1) {
                // Both have begun.
                const SignalWait begun[] = {{.peer = 0}, {.peer = 2}};
                ASSERT_TRUE(communicator.wait_signals(begun).ok());
                return communicator.abort();
              }
              ASSERT_TRUE(communicator.signal(1, 0).ok());
              const SignalWait wait{.peer = 2 - communicator.rank()};
              const Status taken = communicator.wait_signals(std::span(&wait, 1),
                                                             {.timeout = std::chrono::minutes(10)});
              ASSERT_FALSE(taken.ok());
              EXPECT_TRUE(taken.error().aborted) << taken.error().describe();
              EXPECT_EQ(taken.error().peer, 1);
            });
}

TEST(Suspension, RefusesCallsUntilItEnds) {
  run_ranks({.ranks = 3}, [](Communicator& communicator) {
    EXPECT_FALSE(communicator.resume().ok());
    for (int round = 0; round < 3; ++round) {
      ASSERT_TRUE(communicator.barrier().ok());
      ASSERT_TRUE(communicator.suspend().ok());
      EXPECT_TRUE(communicator.failure().ok());
      const Status refused = communicator.barrier();
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().kind, ErrorKind::misuse);
      EXPECT_FALSE(communicator.suspend().ok());
      ASSERT_TRUE(communicator.resume().ok());
    }
    EXPECT_TRUE(communicator.barrier().ok());
  });
}

TEST(Tags, AreInTheRecord) {
  run_ranks({.ranks = 2}, [](Communicator& communicator) {
    float value = 1;
    // Calls that differ in their tags alone, some of them like the one before.
    for (const std::uint64_t tag : {0, 11, 11, 12, 0})
      ASSERT_TRUE(
          communicator
              .all_reduce(&value, &value, 1, DataType::float32, ReduceOperation::max, {.tag = tag})
              .ok());
    const std::string record = communicator.dump_record();
    const auto times = [&](std::string_view text) {
      int found = 0;
      for (std::size_t at = record.find(text); at != std::string::npos;
           at = record.find(text, at + 1))
        ++found;
      return found;
    };
    EXPECT_EQ(times("\"tag\": \"11\""), 2) << record;
    EXPECT_EQ(times("\"tag\": \"12\""), 1) << record;
    EXPECT_EQ(times("\"tag\""), 3) << record;
  });
}

TEST(Choices, CanBeAskedFor) {
  run_ranks({.ranks = 2}, [](Communicator& communicator) {
    float value = 1;
    Call call;
    call.input = &value;
    call.output = &value;
    call.count = 1;
    call.options.algorithm = "ring";
    EXPECT_TRUE(communicator.can_choose(call));
    call.options.algorithm = "no_such_algorithm";
    EXPECT_FALSE(communicator.can_choose(call));
    EXPECT_TRUE(communicator.barrier().ok());
  });
}

}  // namespace
}  // namespace unisono
