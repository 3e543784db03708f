#include "base/text_position.h"

#include "base/str.h"
#include "base/utf8.h"

namespace unisono {

std::string position_in(std::string_view text, std::size_t offset) {
  std::size_t line = 1;
  std::size_t column = 1;
  for (char c : text.substr(0, offset)) {
    if (c == '\n') {
      ++line;
      column = 1;
    } else if (starts_character(c)) {
      ++column;
    }
  }
  return str("line ", line, ", column ", column);
}

std::string character_at(std::string_view text, std::size_t offset) {
  if (offset >= text.size()) return "the end of the text";
  if (text[offset] == '\n') return "the end of the line";
  const std::size_t length = utf8_length(text.substr(offset));
  const auto byte = static_cast<unsigned char>(text[offset]);
  if (length == 0 || byte < 0x20 || byte == 0x7F) return str("byte ", static_cast<unsigned>(byte));
  return str("'", text.substr(offset, length), "'");
}

}  // namespace unisono
