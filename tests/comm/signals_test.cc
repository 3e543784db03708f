// Signals between two ends in one process, and what does not reach.

#include "comm/device/signals.h"

#include <gtest/gtest.h>

#include "base/str.h"
#include "sys/real_world.h"

namespace unisono::comm {
namespace {

std::string unique_name() {
  static int made = 0;
  return str("test-", getpid(), "-", made++);
}

TEST(Signals, AreCountedForEachPairAndNumber) {
  const auto world = std::move(*sys::RealWorld::create());
  const std::string name = unique_name();
  auto first = Signals::open(*world, name, 0, {0, 2}, 3);
  auto second = Signals::open(*world, name, 2, {0, 2}, 3);
  ASSERT_TRUE(first.ok() && second.ok());
  (*first)->all_have_joined();
  const auto takes = [&](Signals& of, int peer, int number, std::uint64_t count) {
    const SignalWait wait{.peer = peer, .signal = number, .count = count};
    const auto taken = of.try_take(std::span(&wait, 1));
    EXPECT_TRUE(taken.ok());
    return taken.ok() && *taken;
  };
  EXPECT_FALSE(takes(**second, 0, 5, 1));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE((*first)->signal(2, 5).ok());
  EXPECT_FALSE(takes(**second, 0, 4, 1));
  EXPECT_FALSE(takes(**first, 2, 5, 1));
  EXPECT_FALSE(takes(**second, 0, 5, 4));
  EXPECT_TRUE(takes(**second, 0, 5, 2));
  EXPECT_FALSE(takes(**second, 0, 5, 2));
  EXPECT_TRUE(takes(**second, 0, 5, 1));
  // Two waits for one number want the sum; what is not all there is not taken at all.
  EXPECT_TRUE((*first)->signal(2, 5).ok());
  const SignalWait twice[] = {{.peer = 0, .signal = 5}, {.peer = 0, .signal = 5}};
  EXPECT_FALSE(*(*second)->try_take(twice));
  const SignalWait both[] = {{.peer = 0, .signal = 5}, {.peer = 2, .signal = 7}};
  const auto missing = (*second)->find_missing(both);
  ASSERT_TRUE(missing);
  EXPECT_EQ(std::pair(missing->peer, missing->signal), std::pair(2, 7));
  EXPECT_TRUE((*first)->signal(2, 5).ok());
  EXPECT_FALSE((*second)->find_missing(twice));
  EXPECT_TRUE(*(*second)->try_take(twice));
  // To itself.
  EXPECT_TRUE((*second)->signal(2, 63).ok());
  EXPECT_TRUE(takes(**second, 2, 63, 1));
}

TEST(Signals, ReachRanksOfTheHostOnly) {
  const auto world = std::move(*sys::RealWorld::create());
  auto made = Signals::open(*world, unique_name(), 0, {0, 2}, 3);
  ASSERT_TRUE(made.ok());
  (*made)->all_have_joined();
  const Status far = (*made)->signal(1, 0);
  ASSERT_FALSE(far.ok());
  EXPECT_EQ(far.error().kind, ErrorKind::environment);
  EXPECT_NE(far.error().message.find("ranks 0 and 1 are on different hosts"), std::string::npos);
  for (const auto& [peer, number] : {std::pair(3, 0), {-1, 0}, {2, 64}, {2, -1}}) {
    const Status wrong = (*made)->signal(peer, number);
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().kind, ErrorKind::misuse);
  }
  EXPECT_FALSE(Signals::open(*world, "no/such/place", 0, {0}, 1).ok());
}

TEST(Signals, OfOtherHostsAreCountedByWhoCarriesThem) {
  const auto world = std::move(*sys::RealWorld::create());
  auto made = Signals::open(*world, unique_name(), 0, {0, 2}, 3);
  ASSERT_TRUE(made.ok());
  (*made)->all_have_joined();
  EXPECT_FALSE((*made)->is_on_this_host(1));
  const SignalWait both[] = {{.peer = 0, .signal = 4}, {.peer = 1, .signal = 4, .count = 2}};
  EXPECT_TRUE((*made)->signal(0, 4).ok());
  (*made)->came_from_afar(1, 4);
  (*made)->came_from_afar(1, 5);
  EXPECT_FALSE(*(*made)->try_take(both));
  EXPECT_EQ((*made)->find_missing(both)->peer, 1);
  (*made)->came_from_afar(1, 4);
  EXPECT_FALSE((*made)->find_missing(both));
  EXPECT_TRUE(*(*made)->try_take(both));
  EXPECT_FALSE(*(*made)->try_take(both));
  const SignalWait other{.peer = 1, .signal = 5};
  EXPECT_TRUE(*(*made)->try_take(std::span(&other, 1)));
}

TEST(Signals, ATurnThatDoesNotEndIsAnErrorThatNamesItsHolder) {
  const auto world = std::move(*sys::RealWorld::create());
  const std::string name = unique_name();
  auto first = Signals::open(*world, name, 0, {0, 2}, 3);
  auto second = Signals::open(*world, name, 2, {0, 2}, 3);
  ASSERT_TRUE(first.ok() && second.ok());
  (*first)->all_have_joined();
  ASSERT_TRUE((*first)->begin_turn(2).ok());
  // Each rank's words have turns of their own.
  ASSERT_TRUE((*second)->begin_turn(0).ok());
  (*second)->end_turn(0);
  const Status waited = (*second)->begin_turn(2);
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().peer, 0);
  EXPECT_NE(waited.error().message.find("it has been rank 0's turn"), std::string::npos);
  (*first)->end_turn(2);
  EXPECT_TRUE((*second)->begin_turn(2).ok());
}

}  // namespace
}  // namespace unisono::comm
