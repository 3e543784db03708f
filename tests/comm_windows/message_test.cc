// Messages about windows as bytes: what is written is read, and what nobody writes is refused.

#include "comm/windows/message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace unisono::comm {
namespace {

constexpr std::uint64_t most_bytes = 1 << 20;

WindowMessage full() {
  return {.verb = WindowVerb::put,
          .operation = WordOperation::compare_and_swap,
          .signal = 63,
          .window = 0xfedcba98,
          .question = 0x0123456789abcdef,
          .offset = 0xfedcba9876543210,
          .bytes = 3,
          .operand = UINT64_MAX,
          .expected = 7};
}

TEST(WindowMessages, AreReadAsTheyWereWritten) {
  const std::vector<std::byte> data{std::byte{1}, std::byte{2}, std::byte{3}};
  for (int verb = 1; verb <= 8; ++verb)
    for (const int signal : {no_signal, 0, 63}) {
      WindowMessage message = full();
      message.verb = static_cast<WindowVerb>(verb);
      message.signal = signal;
      // It outlives what is read, whose data lie in it.
      const WindowHeader header =
          encode(message, message.has_data() ? data : std::vector<std::byte>());
      const auto read = read_window_message(header, most_bytes);
      ASSERT_TRUE(read.ok()) << read.error().describe();
      EXPECT_EQ(read->message, message);
      EXPECT_TRUE(
          std::ranges::equal(read->data, message.has_data() ? data : std::vector<std::byte>()));
    }
}

TEST(WindowMessages, HoldDataUpToTheirLimit) {
  WindowMessage message = full();
  for (const std::size_t bytes : {std::size_t{0}, WindowMessage::inline_bytes}) {
    message.bytes = bytes;
    const std::vector<std::byte> data(bytes, std::byte{0x5a});
    const WindowHeader header = encode(message, data);
    const auto read = read_window_message(header, most_bytes);
    ASSERT_TRUE(read.ok());
    EXPECT_TRUE(std::ranges::equal(read->data, data));
  }
  message.bytes = most_bytes;
  const auto longer = read_window_message(encode(message, {}), most_bytes);
  ASSERT_TRUE(longer.ok());
  EXPECT_FALSE(longer->message.is_inline());
  EXPECT_TRUE(longer->data.empty());
}

TEST(WindowMessages, ThatNobodyWritesAreRefused) {
  const auto is_refused = [](std::size_t at, std::uint8_t value) {
    auto header = encode(full(), {});
    header[at] = std::byte{value};
    return !read_window_message(header, most_bytes).ok();
  };
  EXPECT_FALSE(is_refused(0, 1));
  EXPECT_TRUE(is_refused(0, 0)) << "no verb";
  EXPECT_TRUE(is_refused(0, 9));
  EXPECT_TRUE(is_refused(1, 3)) << "no operation";
  EXPECT_TRUE(is_refused(2, 65)) << "no signal";
  EXPECT_TRUE(is_refused(5, 1));
  WindowMessage message = full();
  message.bytes = most_bytes + 1;
  EXPECT_FALSE(read_window_message(encode(message, {}), most_bytes).ok()) << "too long";
  message.verb = WindowVerb::get;
  EXPECT_TRUE(read_window_message(encode(message, {}), most_bytes).ok()) << "not its own data";
  const auto header = encode(full(), {});
  EXPECT_FALSE(read_window_message(std::span(header).first(40), most_bytes).ok()) << "cut short";
}

}  // namespace
}  // namespace unisono::comm
