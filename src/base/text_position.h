// Where in a text something is wrong, for the messages of its readers.
#pragma once

#include <string>
#include <string_view>

namespace unisono {

// "line 2, column 9", both from 1, the column in characters.
std::string position_in(std::string_view text, std::size_t offset);

// What stands there: "'x'", "byte 255" if it is no printable character, "the end of the line" or
// "the end of the text".
std::string character_at(std::string_view text, std::size_t offset);

}  // namespace unisono
