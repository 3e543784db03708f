#include "comm/windows/message.h"

#include <algorithm>

#include "base/error.h"
#include "base/wire.h"

namespace unisono::comm {

WindowHeader encode(const WindowMessage& message, std::span<const std::byte> data) {
  WireWriter writer;
  writer.number(static_cast<std::uint8_t>(message.verb));
  writer.number(static_cast<std::uint8_t>(message.operation));
  // 0 stands for no signal.
  writer.number(static_cast<std::uint32_t>(message.signal + 1));
  writer.number(message.window);
  for (const std::uint64_t number :
       {message.question, message.offset, message.bytes, message.operand, message.expected})
    writer.number(number);
  writer.raw(data.first(std::min(data.size(), WindowMessage::inline_bytes)));
  WindowHeader header{};
  std::ranges::copy(writer.bytes(), header.begin());
  return header;
}

Result<ReadWindowMessage> read_window_message(std::span<const std::byte> bytes,
                                              std::uint64_t most_bytes) {
  WireReader reader(bytes);
  ReadWindowMessage read;
  WindowMessage& message = read.message;
  const auto verb = reader.number<std::uint8_t>();
  const auto operation = reader.number<std::uint8_t>();
  const auto signal = reader.number<std::uint32_t>();
  message.window = reader.number<std::uint32_t>();
  for (std::uint64_t* const number :
       {&message.question, &message.offset, &message.bytes, &message.operand, &message.expected})
    *number = reader.number<std::uint64_t>();
  if (!reader.ok() || verb < static_cast<std::uint8_t>(WindowVerb::put) ||
      verb > static_cast<std::uint8_t>(WindowVerb::refused) || operation >= word_operation_count ||
      signal > signals_of_a_pair)
    return environment_error("a message about a window cannot be read: verb ", int{verb},
                             ", operation ", int{operation}, ", signal ", signal);
  message.verb = static_cast<WindowVerb>(verb);
  message.signal = static_cast<int>(signal) - 1;
  message.operation = static_cast<WordOperation>(operation);
  if (!message.has_data()) return read;
  if (message.bytes > most_bytes)
    return environment_error("a message about a window has ", message.bytes,
                             " bytes of data; it may have ", most_bytes);
  if (message.is_inline()) read.data = reader.raw(message.bytes);
  return read;
}

}  // namespace unisono::comm
