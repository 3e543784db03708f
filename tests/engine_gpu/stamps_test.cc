// Stamps of launches, as kernels store them and the host reads them.

#include "engine/gpu/stamps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace unisono::engine::gpu {
namespace {

class Stamps : public testing::Test {
 protected:
  static constexpr std::uint64_t replay = std::uint64_t{1} << 47;

  void store(device::LaunchStamp::Half& half, std::uint64_t number, std::uint64_t time,
             std::uint64_t call) const {
    const std::uint64_t tag = number << device::stamp_tag_shift;
    half = {.time = tag | time, .call = tag | call};
  }
  device::LaunchStamp& slot(std::uint64_t number) const {
    return mailbox_->stamps[number % device::stamp_slots];
  }
  void begin(std::uint64_t number, std::uint64_t call) const {
    store(slot(number).begin, number, 10 * number, call);
  }
  void end(std::uint64_t number, std::uint64_t call) const {
    store(slot(number).end, number, 10 * number + 5, call);
  }

  const std::unique_ptr<device::Mailbox> mailbox_ = std::make_unique<device::Mailbox>();
  StampReader reader_{mailbox_.get()};
};

TEST_F(Stamps, TellOfEachLaunchOnceItHasEndedAndOfTheOneThatRuns) {
  EXPECT_TRUE(reader_.read().empty());
  begin(1, 7);
  for (int look = 0; look < 2; ++look) {
    const auto seen = reader_.read();
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_EQ(seen[0].call, 7U);
    EXPECT_EQ(seen[0].begin_time, 10U);
    EXPECT_EQ(seen[0].end_time, 0U);
  }
  end(1, 7);
  begin(2, replay | 3);
  const auto seen = reader_.read();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].end_time, 15U);
  EXPECT_EQ(seen[1].call, replay | 3);
  EXPECT_EQ(seen[1].number, 2U);
  EXPECT_EQ(seen[1].end_time, 0U);
  end(2, replay | 3);
  EXPECT_EQ(reader_.read().size(), 1U);
  EXPECT_TRUE(reader_.read().empty());
}

TEST_F(Stamps, ThatAreBeingStoredAreReadTheNextTime) {
  begin(1, 7);
  end(1, 7);
  slot(1).end.call = 0;  // the other half of the 16 bytes has not arrived
  const auto seen = reader_.read();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].end_time, 0U);
}

// A kernel that has nothing to do may tell its end alone.
TEST_F(Stamps, WithoutABeginAreOfALaunchThatEnded) {
  end(1, 7);
  const auto seen = reader_.read();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].begin_time, 0U);
  EXPECT_EQ(seen[0].end_time, 15U);
}

// More launches than there are slots between two looks, once and over all numbers that the tag has.
TEST_F(Stamps, ThatWereOverwrittenAreLeftOut) {
  std::uint64_t launched = 0;
  for (const std::uint64_t between : {3U, 1024U, 1025U, 2500U, 20'000U, 30'000U, 30'000U, 5U}) {
    for (std::uint64_t i = 0; i < between; ++i) {
      ++launched;
      begin(launched, launched);
      end(launched, launched);
    }
    const auto seen = reader_.read();
    ASSERT_FALSE(seen.empty());
    EXPECT_EQ(seen.back().number, launched);
    EXPECT_EQ(seen.size(), std::min(between, device::stamp_slots));
    for (const auto& one : seen) EXPECT_EQ(one.call, one.number);
  }
}

TEST_F(Stamps, WaitsAreThoseOfBlocksThatWait) {
  EXPECT_TRUE(published_waits(*mailbox_).empty());
  mailbox_->waits[3] = {.what = device::Failure::credit | (5U + 1) << 4 | (2U + 1) << 16,
                        .where = 4U | 9U << 16,
                        .expected = 100,
                        .got = 90};
  mailbox_->waits[4] = {.what = device::Failure::dependency, .where = 0, .expected = 2, .got = 1};
  const auto waits = published_waits(*mailbox_);
  ASSERT_EQ(waits.size(), 2U);
  EXPECT_EQ(waits[0], (trace::Waiting{.kind = trace::Waiting::Kind::credit,
                                      .peer = 5,
                                      .channel = 2,
                                      .thread_block = 3,
                                      .step = 4,
                                      .tile = 9,
                                      .expected = 100,
                                      .got = 90}));
  EXPECT_EQ(waits[1].peer, -1);
  EXPECT_EQ(waits[1].channel, -1);
}

}  // namespace
}  // namespace unisono::engine::gpu
