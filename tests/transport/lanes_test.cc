// Which lane takes which bytes of a put, in virtual time and without a network.

#include "transport/lanes/lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace unisono::test {
namespace {

using transport::Lanes;

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

// Lanes that carry what they were given at rates of their own, in steps of virtual time.
class Wires {
 public:
  // `rates`: bytes a nanosecond. `buffered_bytes`: a lane with more outstanding is full.
  Wires(std::vector<double> rates, std::size_t buffered_bytes)
      : rates_(std::move(rates)),
        buffered_bytes_(static_cast<double>(buffered_bytes)),
        lanes_(rates_.size(), rates_.size()),
        outstanding_(rates_.size()),
        carried_(rates_.size()) {}

  Lanes& lanes() { return lanes_; }
  double& rate(std::size_t lane) { return rates_[lane]; }
  const std::vector<double>& carried() const { return carried_; }

  // Moves puts of `put_bytes` until `total_bytes` have arrived; a put begins when fewer than
  // `window_bytes` of those before it are missing. The time that it took.
  double move(std::size_t total_bytes, std::size_t put_bytes, std::size_t window_bytes) {
    const std::int64_t begin_ns = now_ns_;
    std::size_t begun = 0;
    std::size_t left_of_put = 0;
    for (bool over = false; !over;) {
      for (;;) {
        const double missing = std::accumulate(outstanding_.begin(), outstanding_.end(), 0.0);
        if (left_of_put == 0 && begun < total_bytes &&
            missing + static_cast<double>(put_bytes) <= static_cast<double>(window_bytes)) {
          begun += put_bytes;
          left_of_put = put_bytes;
        }
        if (left_of_put == 0) break;
        look();
        const auto piece = lanes_.next(put_bytes, left_of_put, left_of_put);
        if (!piece) break;
        EXPECT_GT(piece->bytes, 0U);
        EXPECT_LE(piece->bytes, left_of_put);
        lanes_.give(*piece);
        outstanding_[piece->lane] += static_cast<double>(piece->bytes);
        left_of_put -= piece->bytes;
      }
      pass(step_ns);
      over = begun == total_bytes && left_of_put == 0 &&
             std::ranges::all_of(outstanding_, [](double bytes) { return bytes == 0; });
      if (now_ns_ - begin_ns > 1'000'000'000'000) {
        ADD_FAILURE() << "nothing moves";
        break;
      }
    }
    return static_cast<double>(now_ns_ - begin_ns);
  }
  void pass(std::int64_t ns) {
    now_ns_ += ns;
    for (std::size_t i = 0; i < rates_.size(); ++i) {
      const double bytes = std::min(outstanding_[i], rates_[i] * static_cast<double>(ns));
      outstanding_[i] -= bytes;
      carried_[i] += bytes;
    }
    look();
  }

 private:
  static constexpr std::int64_t step_ns = 100'000;

  void look() {
    for (std::size_t i = 0; i < rates_.size(); ++i) {
      lanes_.set_room(i, outstanding_[i] < buffered_bytes_);
      lanes_.look(i, static_cast<std::uint64_t>(std::ceil(outstanding_[i])), now_ns_);
    }
  }

  std::vector<double> rates_;
  double buffered_bytes_;
  Lanes lanes_;
  std::vector<double> outstanding_;
  std::vector<double> carried_;
  std::int64_t now_ns_ = 1'000;
};

// Bytes a nanosecond: 100 and 10 Mbit/s.
constexpr double fast = 0.0125;
constexpr double slow = 0.00125;

TEST(Lanes, OneTakesEverything) {
  Lanes lanes(1, 1);
  EXPECT_TRUE(lanes.stays_whole(std::size_t{1} << 30));
  EXPECT_EQ(lanes.next(mib, mib, mib)->bytes, 256 * kib);
  lanes.set_room(0, false);
  EXPECT_FALSE(lanes.next(mib, mib, mib));
}

TEST(Lanes, ShortPutsStayWholeOnTheFirst) {
  Lanes lanes(2, 2);
  lanes.look(0, mib, 1);
  for (const std::size_t bytes : {std::size_t{1}, Lanes::most_whole_bytes}) {
    const auto piece = lanes.next(bytes, bytes, bytes);
    ASSERT_TRUE(piece);
    EXPECT_EQ(piece->lane, 0U);
    EXPECT_EQ(piece->bytes, bytes);
  }
  lanes.set_room(0, false);
  EXPECT_FALSE(lanes.next(1, 1, 1));
}

TEST(Lanes, OfOneRailTakePiecesInTurnAndTheEmptierFirst) {
  Lanes lanes(2, 1);
  std::vector<std::size_t> order;
  for (int i = 0; i < 4; ++i) {
    const auto piece = lanes.next(mib, mib, mib);
    ASSERT_TRUE(piece);
    EXPECT_EQ(piece->bytes, 256 * kib);
    order.push_back(piece->lane);
    lanes.give(*piece);
  }
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 0, 1}));
  EXPECT_EQ(lanes.pieces(), 4U);
  lanes.look(1, 0, 0);
  EXPECT_EQ(lanes.next(mib, mib, mib)->lane, 1U);
}

// A message that has all rails to itself arrives soonest so.
TEST(Lanes, PartsOfAShortPutAreEqualOnEqualRails) {
  for (const std::size_t count : {std::size_t{2}, std::size_t{3}, std::size_t{4}}) {
    Lanes lanes(count, count);
    const std::size_t put = 64 * kib;
    std::vector<std::size_t> shares(count);
    for (std::size_t left = put; left > 0;) {
      const auto piece = lanes.next(put, left, left);
      ASSERT_TRUE(piece);
      shares[piece->lane] += piece->bytes;
      left -= piece->bytes;
      lanes.give(*piece);
    }
    for (const std::size_t share : shares)
      EXPECT_NEAR(static_cast<double>(share), static_cast<double>(put) / static_cast<double>(count),
                  256);
    EXPECT_EQ(lanes.pieces(), count);
  }
}

TEST(Lanes, PiecesOfALongPutHave128KiBToAMebibyte) {
  for (const std::size_t put : {256 * kib, 300 * kib, mib, 3 * mib + 77, 64 * mib}) {
    Lanes lanes(2, 2);
    for (std::size_t left = put; left >= 256 * kib;) {
      const auto piece = lanes.next(put, left, left);
      ASSERT_TRUE(piece);
      EXPECT_GE(piece->bytes, 128 * kib) << put;
      EXPECT_LE(piece->bytes, mib) << put;
      lanes.give(*piece);
      lanes.look(piece->lane, 0, 0);
      left -= piece->bytes;
    }
  }
}

// As in a plan whose next message waits for the one that comes the other way.
TEST(Lanes, OneMessageAtATimeUsesAllRailsToItsEnd) {
  for (const std::size_t count : {std::size_t{2}, std::size_t{3}, std::size_t{4}})
    for (const std::size_t put :
         {256 * kib, 320 * kib, 448 * kib, 512 * kib, 700 * kib, mib, 3 * mib}) {
      Wires wires(std::vector<double>(count, fast), mib);
      const std::size_t total = 16 * put;
      const double ns = wires.move(total, put, put);
      EXPECT_LE(ns, 1.1 * static_cast<double>(total) / (static_cast<double>(count) * fast))
          << put << " bytes a put on " << count;
    }
}

// The goal of rails that differ: 1.2 times what both together could do.
TEST(Lanes, OneOfTwoRailsTenTimesSlowerCostsNoMoreThanItsShare) {
  struct Case {
    std::size_t put, window;
  };
  for (const Case one : {Case{64 * kib, 512 * kib},
                         {32 * kib, 256 * kib},
                         {512 * kib, 4 * mib},
                         {16 * mib, 32 * mib}}) {
    Wires wires({slow, fast}, mib);
    wires.move(16 * mib, one.put, one.window);  // learns
    const double ns = wires.move(64 * mib, one.put, one.window);
    EXPECT_LE(ns, 1.1 * static_cast<double>(64 * mib) / (slow + fast))
        << one.put << " bytes a put, " << one.window << " at once";
  }
}

TEST(Lanes, UnequalRailsOfAnyNumberAreAllUsed) {
  const std::vector<double> rates{fast, slow, fast / 2, fast / 3};
  Wires wires(rates, mib);
  const std::size_t total = 64 * mib;
  const double ns = wires.move(total, 256 * kib, 2 * mib);
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  EXPECT_LE(ns, 1.2 * static_cast<double>(total) / sum);
  for (std::size_t lane = 0; lane < rates.size(); ++lane)
    EXPECT_NEAR(wires.carried()[lane] / static_cast<double>(total), rates[lane] / sum, 0.05)
        << lane;
}

TEST(Lanes, ARailThatBecomesSlowerOrFasterGetsLessOrMore) {
  Wires wires({fast, fast}, mib);
  const auto share_of_first = [&] {
    const std::vector<double> before = wires.carried();
    wires.move(16 * mib, 64 * kib, 512 * kib);
    return (wires.carried()[0] - before[0]) / static_cast<double>(16 * mib);
  };
  EXPECT_NEAR(share_of_first(), 0.5, 0.05);
  wires.rate(0) = slow;
  share_of_first();
  EXPECT_NEAR(share_of_first(), 1.0 / 11, 0.03);
  wires.rate(0) = fast;
  share_of_first();
  EXPECT_NEAR(share_of_first(), 0.5, 0.05);
}

// What was slow in one call need not be so for ever, though nothing is given to it.
TEST(Lanes, AWeightIsForgottenWhileNothingIsCarried) {
  Wires wires({slow, fast}, mib);
  wires.move(16 * mib, 64 * kib, 512 * kib);
  EXPECT_NEAR(wires.lanes().weight(0) / wires.lanes().weight(1), 0.1, 0.05);
  for (int second = 0; second < 20; ++second) wires.pass(1'000'000'000);
  EXPECT_GT(wires.lanes().weight(0) / wires.lanes().weight(1), 0.5);
}

// A link that was idle often takes some bytes at once, which says little of it.
TEST(Lanes, AFewFastBytesAfterAPauseDoNotMakeALaneFast) {
  Lanes lanes(2, 2);
  std::int64_t now = 1'000;
  const auto look = [&](std::uint64_t first, std::uint64_t second) {
    lanes.look(0, first, now);
    lanes.look(1, second, now);
  };
  look(mib, 0);
  for (std::uint64_t left = mib; left > 0; left -= std::min<std::uint64_t>(left, 1'250)) {
    look(left, 0);
    now += 100'000;
  }
  look(0, 16 * kib);
  now += 20'000;
  look(0, 0);
  EXPECT_LT(lanes.weight(1), 1.3 * lanes.weight(0));
}

// The same rate, three times the distance.
TEST(Lanes, ALongerWayIsNotANarrowerOne) {
  Lanes lanes(2, 2);
  std::int64_t now = 1'000;
  for (int round = 0; round < 20; ++round) {
    for (int step = 0; step < 60; ++step, now += 100'000) {
      const auto left = [&](int delay) {
        return static_cast<std::uint64_t>(std::clamp(16 + delay - step, 0, 16)) * 1'024;
      };
      lanes.look(0, left(10), now);
      lanes.look(1, left(30), now);
    }
    lanes.look(0, 0, now);
    lanes.look(1, 0, now);
    now += 1'000'000;
  }
  EXPECT_NEAR(lanes.weight(1) / lanes.weight(0), 1, 0.1);
}

TEST(Lanes, AFullLaneThatIsSoonerIsWaitedFor) {
  Wires wires({slow, fast}, mib);
  wires.move(16 * mib, 64 * kib, 512 * kib);
  Lanes& lanes = wires.lanes();
  lanes.set_room(1, false);
  EXPECT_FALSE(lanes.next(mib, mib, 256 * kib)) << "the slow one would end last";
  const auto piece = lanes.next(mib, mib, 16 * mib);
  ASSERT_TRUE(piece) << "much waits: it has its share of that";
  EXPECT_EQ(piece->lane, 0U);
  EXPECT_LT(piece->bytes, mib / 4);
}

// Its piece is not there, and everything else goes on.
TEST(Lanes, OneThatCarriesNothingGetsNothingMore) {
  Wires wires({fast, fast}, mib);
  wires.move(16 * mib, 64 * kib, 512 * kib);
  wires.rate(0) = 0;
  Lanes& lanes = wires.lanes();
  for (int i = 0; i < 8; ++i) {
    const auto piece = lanes.next(64 * kib, 64 * kib, 64 * kib);
    ASSERT_TRUE(piece);
    lanes.give(*piece);
  }
  const std::uint64_t before = lanes.pieces();
  std::uint64_t at_dead = 0;
  std::int64_t now = 1'000'000'000'000;
  for (int i = 0; i < 100; ++i, now += 10'000'000) {
    lanes.look(0, 256 * kib, now);
    lanes.look(1, 0, now);
    const auto piece = lanes.next(64 * kib, 64 * kib, 64 * kib);
    ASSERT_TRUE(piece);
    at_dead += piece->lane == 0 ? 1 : 0;
    lanes.give(*piece);
  }
  EXPECT_EQ(lanes.pieces(), before + 100);
  EXPECT_EQ(at_dead, 0U);
}

}  // namespace
}  // namespace unisono::test
