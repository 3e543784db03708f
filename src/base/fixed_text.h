// A sentence in memory of a fixed size, that another process has written or will read.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace unisono {

template <std::size_t capacity>
class FixedText {
 public:
  FixedText() = default;
  explicit FixedText(std::string_view text) { set(text); }

  // Cut to fit.
  void set(std::string_view text) {
    const std::size_t length = std::min(text.size(), capacity - 1);
    std::copy_n(text.begin(), length, characters_.begin());
    characters_[length] = '\0';
  }
  bool empty() const { return characters_[0] == '\0'; }
  // Up to the first 0, whatever is there; a character that is not printable ASCII becomes '?'.
  std::string text() const {
    const auto end = std::find(characters_.begin(), characters_.end(), '\0');
    std::string out(characters_.begin(), end);
    for (char& character : out)
      if (character < ' ' || character > '~') character = '?';
    return out;
  }

 private:
  std::array<char, capacity> characters_{};
};

}  // namespace unisono
