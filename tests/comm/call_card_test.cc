#include <gtest/gtest.h>

#include <array>

#include "base/fingerprint.h"
#include "comm/run/calls.h"

namespace unisono::comm {
namespace {

CallCard card() {
  return {.call = pack({.collective = Collective::all_gather, .count = 5}),
          .plan = plan_id("ring", 0, Protocol::ll, 2)};
}

std::string said(const CallCard& other) {
  const std::array cards{card(), card(), other};
  const Status status = compare(cards, 9, 4);
  return status.ok() ? "" : status.error().message;
}

TEST(CallCards, AreAlikeOrBothAreNamed) {
  EXPECT_EQ(said(card()), "");
  CallCard other = card();
  other.call = pack({.collective = Collective::barrier});
  EXPECT_EQ(said(other),
            "ranks disagree on call 4 of communicator 9: rank 0 calls all_gather of 5 int8; rank 2 "
            "calls barrier");
  other = card();
  other.plan = plan_id("star", 0, Protocol::simple, 1);
  EXPECT_EQ(
      said(other),
      "ranks disagree on call 4 of communicator 9: rank 0 calls all_gather of 5 int8, by plan "
      "ring, ll, 2 channels; rank 2 calls all_gather of 5 int8, by plan star, simple, 1 "
      "channel");
  other = card();
  other.options = 1;
  EXPECT_EQ(said(other),
            "ranks disagree on call 4 of communicator 9: rank 0 calls all_gather of 5 int8; rank 2 "
            "calls all_gather of 5 int8 with other options");
}

TEST(CallCards, TellWhereACallRuns) {
  CallCard other = card();
  other.plan = plan_id("ring", 0, Protocol::ll, 2, Place::device);
  EXPECT_EQ(said(other),
            "ranks disagree on call 4 of communicator 9: rank 0 calls all_gather of 5 int8, by "
            "plan ring, ll, 2 channels, on the host; rank 2 calls all_gather of 5 int8, by plan "
            "ring, ll, 2 channels, on the device");
}

}  // namespace
}  // namespace unisono::comm
