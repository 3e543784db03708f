#include "comm/calls.h"

#include <gtest/gtest.h>

namespace unisono::comm {
namespace {

constexpr std::uint64_t large = 16 << 20;

TEST(Calls, LargeOnesThatLeaveRoomTakeFewMultiprocessors) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
    for (const int ranks : {2, 3, 8}) {
      EXPECT_EQ(max_sms_beside(collective, ranks, large), 8) << name(collective);
      EXPECT_EQ(max_sms_beside(collective, ranks, large - 1), 0) << name(collective);
    }
}

TEST(Calls, OthersTakeWhatTheyLike) {
  EXPECT_EQ(max_sms_beside(Collective::broadcast, 2, large), 0);
  EXPECT_EQ(max_sms_beside(Collective::all_to_all, 2, large), 0);
  EXPECT_EQ(max_sms_beside(Collective::all_reduce, 1, large), 0);
  EXPECT_EQ(max_sms_beside(Collective::all_reduce, 9, large), 0);
}

TEST(Calls, RanksThatDifferInLeavingRoomAreTold) {
  Call call;
  const Fingerprint usual = fingerprint(call);
  call.options.leaves_room = true;
  EXPECT_NE(fingerprint(call), usual);
}

}  // namespace
}  // namespace unisono::comm
