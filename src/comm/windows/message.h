// Ranks of different hosts send each other messages about windows. A message is a header of fixed
// length, in which short data lie; longer data follow as a message of their own.
//
// Requests are answered in their order; a put has no answer of its own. The target executes each
// one when it reads it, so who is answered knows that all requests before are done, too.
#pragma once

#include <unisono/result.h>
#include <unisono/window.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/windows/word_operation.h"

namespace unisono::comm {

enum class WindowVerb : std::uint8_t {
  put = 1,      // data for `window` at `offset`
  get = 2,      // asks for `bytes` of it
  word = 3,     // asks for an operation on a 64-bit word of it
  flush = 4,    // asks for an answer
  signal = 5,   // counts a signal
  data = 6,     // answers a get: the bytes from `offset` of what was asked for
  value = 7,    // answers a word or a flush
  refused = 8,  // answers any request: the window is closed, or smaller
};

struct WindowMessage {
  // Data up to so many bytes lie in the header.
  static constexpr std::size_t inline_bytes = 128;

  WindowVerb verb = WindowVerb::flush;
  WordOperation operation = WordOperation::add;
  int signal = no_signal;  // of a signal, or of a put: after its data
  std::uint32_t window = 0;
  std::uint64_t question = 0;  // the answer has the same; of a put 0
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // of the data, or that are asked for
  std::uint64_t operand = 0;
  std::uint64_t expected = 0;

  bool has_data() const { return verb == WindowVerb::put || verb == WindowVerb::data; }
  bool is_inline() const { return bytes <= inline_bytes; }
  bool operator==(const WindowMessage&) const = default;
};

// Verb, operation, signal, window, question, offset, bytes, operand, expected, and the data.
inline constexpr std::size_t window_message_bytes =
    1 + 1 + 4 + 4 + 5 * 8 + WindowMessage::inline_bytes;
using WindowHeader = std::array<std::byte, window_message_bytes>;

// `data` are those of a message that has some, and is_inline(); otherwise nothing.
WindowHeader encode(const WindowMessage& message, std::span<const std::byte> data);

struct ReadWindowMessage {
  WindowMessage message;
  std::span<const std::byte> data;  // of what was read, where the data are inline
};
// `bytes` has window_message_bytes. An error where no verb, operation or signal is like that, or
// data exceed `most_bytes`.
Result<ReadWindowMessage> read_window_message(std::span<const std::byte> bytes,
                                              std::uint64_t most_bytes);

}  // namespace unisono::comm
