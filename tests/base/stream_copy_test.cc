#include "base/stream_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace unisono {
namespace {

TEST(StreamCopy, CopiesAnySizeFromAndToAnyAlignmentAndNothingElse) {
  constexpr std::size_t room = 512;
  constexpr std::byte poison{0xa5};
  std::vector<std::byte> source(room);
  for (std::size_t i = 0; i < room; ++i) source[i] = static_cast<std::byte>(i * 7 + 1);
  for (std::size_t to = 0; to < 65; to += 13)
    for (std::size_t from = 0; from < 65; from += 7)
      for (std::size_t bytes = 0; bytes < 330; bytes += bytes < 130 ? 1 : 37) {
        std::vector<std::byte> expected(room, poison), got(room, poison);
        std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(to));
        stream_copy(got.data() + to, source.data() + from, bytes);
        ASSERT_EQ(got, expected) << bytes << " bytes from " << from << " to " << to;
      }
}

}  // namespace
}  // namespace unisono
