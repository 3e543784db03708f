// UTF-8, one character at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace unisono {

// The length in bytes of the character at the start of `text`; 0 if it is empty or no UTF-8.
// Overlong forms, surrogates and what lies beyond U+10FFFF are none.
std::size_t utf8_length(std::string_view text);

// Appends the character of that code, which must be one.
void append_utf8(std::string& out, unsigned code);

// True for a byte that starts a character, and not for those inside one.
inline bool starts_character(char byte) { return static_cast<unsigned char>(byte) >> 6 != 2; }

}  // namespace unisono
