// Operations on one 64-bit word of a window, each of which gives the word's value before.
#pragma once

#include <unisono/window.h>

#include <cstddef>
#include <cstdint>

namespace unisono::comm {

inline constexpr int word_operation_count = 3;

// Gives the word's value afterwards.
constexpr std::uint64_t apply(WordOperation operation, std::uint64_t before, std::uint64_t operand,
                              std::uint64_t expected) {
  switch (operation) {
    case WordOperation::add:
      return before + operand;
    case WordOperation::swap:
      return operand;
    case WordOperation::compare_and_swap:
      return before == expected ? operand : before;
  }
  return before;
}

// The calling rank has the turn (Signals::begin_turn). The word is aligned, so its owner finds it
// whole without a turn.
std::uint64_t change_word(std::byte* place, WordOperation operation, std::uint64_t operand,
                          std::uint64_t expected);

}  // namespace unisono::comm
