// Stamps of launches, as kernels store them and the host reads them.

#include "engine/gpu/stamps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace unisono::engine::gpu {
namespace {

class Stamps : public testing::Test {
 protected:
  static std::uint64_t time_of(std::uint64_t number) { return 1000 + 10 * number; }
  // As block 0 stores when the launch begins, and what the last block leaves.
  void begin(std::uint64_t number) const { board_->current = {time_of(number), 7 * number}; }
  void end(std::uint64_t number) const {
    device::LaunchStamp& stamp = board_->stamps[number % device::stamp_slots];
    stamp.begin = {time_of(number), number << device::stamp_tag_shift | 7 * number};
    stamp.end = std::max(stamp.end, time_of(number) + 5);
    board_->ended = (number + 1) << 32;
  }
  const std::unique_ptr<device::StampBoard> board_ = std::make_unique<device::StampBoard>();
};

TEST_F(Stamps, TellOfEachLaunchOnceItHasEndedAndOfTheOneThatRuns) {
  EXPECT_TRUE(read_stamps(*board_, 0).empty());
  begin(0);
  board_->ended += 3;  // blocks of it
  auto seen = read_stamps(*board_, 0);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].number, 0U);
  EXPECT_EQ(seen[0].begin_time, time_of(0));
  EXPECT_EQ(seen[0].end_time, 0U);
  end(0);
  begin(1);
  seen = read_stamps(*board_, 0);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].end_time, time_of(0) + 5);
  EXPECT_EQ(seen[1].call, 7U);
  EXPECT_EQ(seen[1].end_time, 0U);
  end(1);
  EXPECT_EQ(read_stamps(*board_, 1).size(), 1U);
  EXPECT_TRUE(read_stamps(*board_, 2).empty());
}

// The first block has stored both, and others of the launch still run.
TEST_F(Stamps, ALaunchHasEndedWhenItsLastBlockHas) {
  begin(0);
  end(0);
  board_->ended = 5;
  const auto seen = read_stamps(*board_, 0);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].end_time, 0U);
}

// More launches than there are slots between two looks, once and over all numbers that a tag has.
TEST_F(Stamps, ThatWereOverwrittenAreLeftOut) {
  std::uint64_t launched = 0;
  for (const std::uint64_t between : {3U, 1023U, 1025U, 2500U, 20'000U, 30'000U, 30'000U, 5U}) {
    const std::uint64_t from = launched;
    for (std::uint64_t i = 0; i < between; ++i, ++launched) {
      begin(launched);
      end(launched);
    }
    const auto seen = read_stamps(*board_, from);
    ASSERT_EQ(seen.size(), std::min(between, device::stamp_slots - 1));
    EXPECT_EQ(seen.back().number, launched - 1);
    for (const auto& one : seen) {
      EXPECT_EQ(one.call, 7 * one.number);
      EXPECT_EQ(one.end_time, one.begin_time + 5);
    }
  }
}

// A kernel stored while the board was copied.
TEST_F(Stamps, OfALaterLaunchInTheSlotAreLeftOut) {
  for (std::uint64_t number = 0; number < 4; ++number) {
    begin(number);
    end(number);
  }
  const std::uint64_t later = 2 + device::stamp_slots;
  board_->stamps[2].begin = {time_of(later), later << device::stamp_tag_shift | 7 * later};
  const auto seen = read_stamps(*board_, 0);
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[2].number, 3U);
}

}  // namespace
}  // namespace unisono::engine::gpu
