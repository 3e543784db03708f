#include "comm/run/backoff.h"

#include <gtest/gtest.h>

#include <vector>

#include "sys/real_world.h"

namespace unisono::comm {
namespace {

sys::World& world() {
  static const auto made = sys::RealWorld::create();
  return **made;
}

// Steps until the first sleep.
int steps_before_sleep(int spins, WokenBy woken_by) {
  Backoff backoff(world(), spins);
  bool slept = false;
  for (int steps = 0; steps < 100'000; ++steps) {
    backoff.step([&](std::int64_t) { slept = true; }, woken_by);
    if (slept) return steps;
  }
  return -1;
}

TEST(Backoff, WhoIsWokenByAnEventSleepsSooner) {
  const int waits_for_memory = steps_before_sleep(4000, WokenBy::time);
  EXPECT_GT(waits_for_memory, 4000);
  for (const WokenBy by : {WokenBy::either, WokenBy::event}) {
    const int waits_for_events = steps_before_sleep(4000, by);
    EXPECT_GE(waits_for_events, SpinChoice::spins_before_events(4000));
    EXPECT_LT(waits_for_events, 100);
  }
}

TEST(Backoff, RanksThatOutnumberTheCoresYieldAWhileAndSoonSleep) {
  EXPECT_EQ(steps_before_sleep(0, WokenBy::time), Backoff::oversubscribed_yields);
  EXPECT_EQ(steps_before_sleep(0, WokenBy::either), Backoff::oversubscribed_yields);
  EXPECT_EQ(steps_before_sleep(0, WokenBy::event), Backoff::polls_between_sleeps - 1);
}

// The system is asked once for each message: by the sleep that finds it.
TEST(Backoff, ASleepForAnEventIsAsLongAsItMayBeAndNeedsNoLook) {
  Backoff backoff(world(), 0);
  std::vector<std::int64_t> sleeps;
  for (int polls = 0; polls < 6 * Backoff::polls_between_sleeps; ++polls) {
    EXPECT_FALSE(backoff.looks());
    backoff.step([&](std::int64_t ns) { sleeps.push_back(ns); }, WokenBy::event);
  }
  EXPECT_EQ(sleeps, std::vector<std::int64_t>(6, Backoff::longest_sleep_ns));
}

TEST(Backoff, LooksWhileItSpinsAndNowAndThenWhileNothingWakesIt) {
  Backoff spins(world(), 4000);
  EXPECT_TRUE(spins.looks());
  bool slept = false;
  while (!slept) {
    const bool looks = spins.looks();
    spins.step([&](std::int64_t) { slept = true; }, WokenBy::event);
    EXPECT_TRUE(looks || slept);
  }
  EXPECT_FALSE(spins.looks());
  Backoff memory(world(), 0);
  int looks = 0;
  for (int polls = 0; polls < 160; ++polls) {
    looks += memory.looks() ? 1 : 0;
    memory.step([](std::int64_t) {}, WokenBy::time);
  }
  EXPECT_EQ(looks, 10) << "for the sake of others";
}

TEST(Backoff, SleepsGrowToABoundAndBeginAnewAfterProgress) {
  Backoff backoff(world(), 0);
  std::vector<std::int64_t> sleeps;
  while (sleeps.size() < 12) backoff.step([&](std::int64_t ns) { sleeps.push_back(ns); });
  EXPECT_EQ(sleeps[0], 20'000);
  EXPECT_EQ(sleeps[1], 40'000);
  EXPECT_EQ(sleeps.back(), 500'000);
  backoff.reset();
  int steps = 0;
  for (sleeps.clear(); sleeps.empty(); ++steps)
    backoff.step([&](std::int64_t ns) { sleeps.push_back(ns); });
  EXPECT_EQ(steps, Backoff::oversubscribed_yields + 1);
  EXPECT_EQ(sleeps[0], 20'000);
}

TEST(Backoff, ManyRanksOfACoreSleepLonger) {
  EXPECT_EQ(Backoff::longest_sleep_of(0), Backoff::longest_sleep_ns);
  EXPECT_EQ(Backoff::longest_sleep_of(8), Backoff::longest_sleep_ns);
  EXPECT_EQ(Backoff::longest_sleep_of(256), 32 * Backoff::longest_sleep_ns);
  Backoff backoff(world(), 0, Backoff::longest_sleep_of(16));
  std::vector<std::int64_t> sleeps;
  while (sleeps.size() < 12) backoff.step([&](std::int64_t ns) { sleeps.push_back(ns); });
  EXPECT_EQ(sleeps.back(), 2 * Backoff::longest_sleep_ns);
}

}  // namespace
}  // namespace unisono::comm
