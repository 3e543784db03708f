// Device memory that the ranks of a process reach.
#include "transport/nvlink/pool.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "support/gpu_cluster.h"

namespace unisono::test {
namespace {

using transport::nvlink::Pool;

// A kernel of the other end, which its stream has held up, may store there when this end is gone.
TEST(GpuPool, AMappingInOneProcessKeepsTheMemoryOfAnEndThatIsGone) {
  std::string why;
  const auto devices = usable_devices(&why);
  if (devices.empty()) GTEST_SKIP() << why;
  Pool theirs(devices.front());
  Pool mine(devices.back());
  auto stretch = theirs.take(4096);
  ASSERT_TRUE(stretch.ok()) << stretch.error().describe();
  const transport::nvlink::Location location = stretch->location();
  auto mapping = mine.map(3, location, 4096);
  ASSERT_TRUE(mapping.ok()) << mapping.error().describe();
  *stretch = {};
  const std::array<std::uint64_t, 2> sent{7, 11};
  std::array<std::uint64_t, 2> found{};
  const sys::cuda::Device& device = *devices.front();
  EXPECT_TRUE(device.upload(mapping->address(), sent.data(), sizeof sent).ok());
  EXPECT_TRUE(
      device.copy(sys::cuda::address_of(found.data()), mapping->address(), sizeof found).ok());
  EXPECT_EQ(found, sent);
  *mapping = {};
  const auto late = mine.map(3, location, 4096);
  ASSERT_FALSE(late.ok());
  EXPECT_NE(late.error().message.find("has freed its device memory"), std::string::npos);
}

TEST(GpuPool, AStretchThatIsNotInItsPieceIsRefused) {
  std::string why;
  const auto devices = usable_devices(&why);
  if (devices.empty()) GTEST_SKIP() << why;
  Pool theirs(devices.front());
  Pool mine(devices.back());
  auto stretch = theirs.take(4096);
  ASSERT_TRUE(stretch.ok()) << stretch.error().describe();
  const transport::nvlink::Location good = stretch->location();
  const std::uint64_t past = std::uint64_t{1} << 40;
  for (const auto& [offset, bytes] : {std::pair<std::uint64_t, std::size_t>{past, 4096},
                                      {good.offset + 1, 4096},
                                      {UINT64_MAX - 255, 4096},
                                      {good.offset, past}}) {
    transport::nvlink::Location bad = good;
    bad.offset = offset;
    const auto refused = mine.map(3, bad, bytes);
    ASSERT_FALSE(refused.ok()) << offset;
    EXPECT_EQ(refused.error().peer, 3);
    EXPECT_NE(refused.error().message.find("of rank 3 cannot be there"), std::string::npos);
  }
}

}  // namespace
}  // namespace unisono::test
