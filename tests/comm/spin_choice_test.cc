#include "comm/run/spin_choice.h"

#include <gtest/gtest.h>

namespace unisono::comm {
namespace {

constexpr int spins = 4000;
const auto none_lost = [] { return 0; };

// How many waits in a row do not spin.
int waits_left_out(SpinChoice& choice) {
  int waits = 0;
  while (choice.begin(true) == 0 && waits < 1000) ++waits;
  return waits;
}

TEST(SpinChoice, SpinsAsLongAsThatPays) {
  SpinChoice choice(spins, true);
  for (int wait = 0; wait < 1000; ++wait) {
    EXPECT_TRUE(choice.spins_next());
    EXPECT_EQ(choice.begin(true), SpinChoice::spins_before_events(spins));
    choice.came(none_lost);
  }
  EXPECT_EQ(choice.begin(false), spins);
}

TEST(SpinChoice, EachSpinInVainLeavesOutMoreWaitsUpToABound) {
  SpinChoice choice(spins, true);
  for (const int left_out : {1, 2, 4, 8, 16, 32, 64, 64, 64}) {
    choice.in_vain();
    EXPECT_FALSE(choice.spins_next());
    EXPECT_EQ(waits_left_out(choice), left_out);
  }
}

TEST(SpinChoice, OneSpinThatPaysMakesUpForThoseInVain) {
  SpinChoice choice(spins, true);
  for (int i = 0; i < 20; ++i) choice.in_vain();
  waits_left_out(choice);
  choice.came(none_lost);
  EXPECT_TRUE(choice.spins_next());
  choice.in_vain();
  EXPECT_EQ(waits_left_out(choice), 1);
}

// What comes while a thread spins may come late, because others had the core meanwhile.
TEST(SpinChoice, LostTurnsLeaveOutTheMostWaitsThoughMessagesCame) {
  SpinChoice choice(spins, true);
  int asked = 0;
  const auto many_lost = [&asked] {
    ++asked;
    return SpinChoice::most_lost_in_waits + 1;
  };
  for (int wait = 0; wait < SpinChoice::waits_between_asks; ++wait) {
    EXPECT_TRUE(choice.spins_next()) << wait;
    choice.came(many_lost);
  }
  EXPECT_EQ(asked, 1) << "the system is asked now and then";
  EXPECT_EQ(waits_left_out(choice), SpinChoice::most_left_out);
  for (int wait = 0; wait < 10 * SpinChoice::waits_between_asks; ++wait)
    choice.came([] { return SpinChoice::most_lost_in_waits; });
  EXPECT_TRUE(choice.spins_next()) << "few are other programs that run now and then";
}

TEST(SpinChoice, AnyTurnLostInALongWaitEndsItsSpins) {
  SpinChoice choice(spins, true);
  EXPECT_FALSE(choice.lost_turns(none_lost));
  EXPECT_EQ(choice.begin(false), spins);
  EXPECT_TRUE(choice.lost_turns([] { return 1; }));
  EXPECT_EQ(choice.begin(false), 0);
}

TEST(SpinChoice, WhatIsSetDoesNotAdapt) {
  SpinChoice always(640, false);
  SpinChoice never(0, false);
  int asked = 0;
  const auto lost = [&asked] { return ++asked; };
  for (int wait = 0; wait < 100; ++wait) {
    always.in_vain();
    always.came(lost);
    EXPECT_FALSE(always.lost_turns(lost));
    EXPECT_EQ(always.begin(true), 10);
    EXPECT_EQ(always.begin(false), 640);
    EXPECT_EQ(never.begin(true), 0);
    EXPECT_FALSE(never.spins_next());
  }
  EXPECT_EQ(asked, 0);
}

}  // namespace
}  // namespace unisono::comm
