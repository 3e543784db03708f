// What a device's clock shows, on the host's.

#include "comm/device/device_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>

namespace unisono::comm {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::uint64_t mask = (std::uint64_t{1} << 48) - 1;

TEST(DeviceClock, LiesBetweenItsBounds) {
  DeviceClock clock;
  clock.came_after(1000, 5000);
  clock.came_before(1500, 5900);
  // The difference is from 4000 to 4400.
  EXPECT_EQ(clock.offset_ns(), 4200);
  EXPECT_EQ(clock.error_ns(5900), 200);
}

TEST(DeviceClock, TheClosestBoundCounts) {
  DeviceClock clock;
  clock.came_after(1000, 5000);
  clock.came_before(1000, 9000);
  clock.came_after(2000, 5500);   // the stream was busy
  clock.came_before(2000, 7000);  // looked at soon
  EXPECT_EQ(clock.error_ns(7000), 500);
  EXPECT_EQ(clock.offset_ns(), 4500);
}

TEST(DeviceClock, TheErrorGrowsUntilALaterBoundTakesTheOldOnesPlace) {
  DeviceClock clock;
  clock.came_after(0, 0);
  clock.came_before(0, 10);
  EXPECT_EQ(clock.error_ns(second_ns), 5 + 100'000);
  // It is 50 us a second faster than the host's.
  clock.came_after(second_ns + 50'000, second_ns);
  clock.came_before(second_ns + 50'000, second_ns + 10);
  EXPECT_EQ(clock.error_ns(second_ns + 10), 5);
  EXPECT_EQ(clock.offset_ns(), -50'000 + 5);
}

// For an hour of a clock that drifts and is at the end of its 48 bits: what is said is never more
// wrong than its error.
TEST(DeviceClock, NeverMissesByMoreThanItsError) {
  std::mt19937_64 random(7);
  DeviceClock clock;
  const std::int64_t ahead = (std::int64_t{1} << 48) - 1800 * second_ns;
  const auto device_of = [&](std::int64_t host_ns) {
    return static_cast<std::uint64_t>(ahead + host_ns + host_ns / 20'000) & mask;
  };
  std::int64_t worst_ns = 0;
  for (std::int64_t now = 0; now < 3600 * second_ns;
       now += static_cast<std::int64_t>(random() % second_ns)) {
    const std::int64_t begin = now + static_cast<std::int64_t>(random() % 100'000);
    const std::int64_t end = begin + static_cast<std::int64_t>(random() % 1'000'000);
    const std::int64_t look = end + static_cast<std::int64_t>(random() % 50'000'000);
    clock.came_after(clock.unwrap(device_of(begin)), now);
    const std::int64_t ended = clock.unwrap(device_of(end));
    clock.came_before(ended, look);
    const std::int64_t missed = ended + clock.offset_ns() - end;
    EXPECT_LE(std::abs(missed), clock.error_ns(look)) << "at " << now;
    worst_ns = std::max(worst_ns, clock.error_ns(look));
  }
  EXPECT_LT(worst_ns, 60'000'000);
}

}  // namespace
}  // namespace unisono::comm
