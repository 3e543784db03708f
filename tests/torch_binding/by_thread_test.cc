// What a thread opens is its own, whatever other threads do. The thread sanitizer looks on.

#include "torch/by_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

namespace unisono::pytorch {
namespace {

using Numbers = ByThread<std::vector<int>>;

TEST(ByThread, AThreadHasOneUntilItTakesIt) {
  Numbers all;
  EXPECT_EQ(all.own(), nullptr);
  EXPECT_FALSE(all.take());
  EXPECT_TRUE(all.open());
  all.own()->push_back(7);
  EXPECT_FALSE(all.open());
  EXPECT_EQ(all.take(), std::vector{7});
  EXPECT_EQ(all.own(), nullptr);
  EXPECT_TRUE(all.open());
  EXPECT_TRUE(all.own()->empty());
  all.clear();
  EXPECT_EQ(all.own(), nullptr);
  EXPECT_FALSE(all.take());
}

// The system may give the number of a thread that ended to the next one.
TEST(ByThread, AThreadThatEndsLeavesNothingToALaterOne) {
  Numbers all;
  std::thread([&] { EXPECT_TRUE(all.open()); }).join();
  for (int i = 0; i < 20; ++i) std::thread([&] { EXPECT_EQ(all.own(), nullptr); }).join();
  EXPECT_EQ(all.own(), nullptr);
}

TEST(ByThread, NoThreadSeesWhatAnotherHasOpen) {
  constexpr int rounds = 2000;
  constexpr int openers = 3;
  Numbers all;
  std::latch start(openers + 1);
  std::atomic<int> at_work{openers};
  std::vector<std::thread> threads;
  for (int own = 0; own < openers; ++own)
    threads.emplace_back([&, own] {
      start.arrive_and_wait();
      for (int round = 0; round < rounds; ++round) {
        ASSERT_TRUE(all.open());
        for (int part = 0; part < 3; ++part) all.own()->push_back(own);
        ASSERT_EQ(all.take(), std::vector(3, own));
        ASSERT_EQ(all.own(), nullptr);
      }
      at_work.fetch_sub(1);
    });
  // A thread that reduces, or a future's callback.
  threads.emplace_back([&] {
    start.arrive_and_wait();
    while (at_work.load() > 0) {
      ASSERT_EQ(all.own(), nullptr);
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace unisono::pytorch
