#include "base/block_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace unisono {
namespace {

std::vector<std::byte> counting(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + i / 251);
  return out;
}

TEST(BlockCopy, CopiesAnySizeFromAndToAnyAlignmentAndNothingElse) {
  constexpr std::size_t room = 9000;
  constexpr std::byte poison{0xa5};
  const auto source = counting(room);
  for (std::size_t to = 0; to < 65; to += 13)
    for (std::size_t from = 0; from < 65; from += 21)
      for (const std::size_t bytes : {0, 1, 63, 64, 4095, 4096, 4097, 4159, 4160, 8191, 8200}) {
        for (const auto copy : {block_copy, string_copy}) {
          std::vector<std::byte> expected(room, poison), got(room, poison);
          std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), bytes,
                      expected.begin() + static_cast<std::ptrdiff_t>(to));
          copy(got.data() + to, source.data() + from, bytes);
          ASSERT_EQ(got, expected) << bytes << " bytes from " << from << " to " << to;
        }
      }
}

TEST(BlockCopy, MovesWhatOverlaps) {
  constexpr std::size_t room = 12'000, bytes = 8'000;
  for (const std::size_t by : {1, 48, 64, 4096, 7999}) {
    std::vector<std::byte> up = counting(room + bytes), down = up;
    std::vector<std::byte> expected_up = up, expected_down = up;
    std::copy_backward(expected_up.begin(), expected_up.begin() + bytes,
                       expected_up.begin() + static_cast<std::ptrdiff_t>(bytes + by));
    block_copy(up.data() + by, up.data(), bytes);
    EXPECT_EQ(up, expected_up) << "up by " << by;
    std::copy_n(expected_down.begin() + static_cast<std::ptrdiff_t>(by), bytes,
                expected_down.begin());
    block_copy(down.data(), down.data() + by, bytes);
    EXPECT_EQ(down, expected_down) << "down by " << by;
  }
}

}  // namespace
}  // namespace unisono
