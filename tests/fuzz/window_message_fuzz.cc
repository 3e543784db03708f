// Messages about windows: what is read has a verb, a signal and data that there are, and is written
// as it came.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "comm/windows/message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace unisono::comm;
  constexpr std::uint64_t most_bytes = 512 << 10;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto read = read_window_message(bytes, most_bytes);
  if (!read.ok()) return 0;
  const WindowMessage& message = read->message;
  if (message.signal < unisono::no_signal || message.signal >= unisono::signals_of_a_pair)
    std::abort();
  if (message.has_data() && message.bytes > most_bytes) std::abort();
  if (read->data.size() > WindowMessage::inline_bytes) std::abort();
  const auto again = encode(message, read->data);
  if (size == again.size()) {
    const auto reread = read_window_message(again, most_bytes);
    if (!reread.ok() || reread->message != message || !std::ranges::equal(reread->data, read->data))
      std::abort();
  }
  return 0;
}
