#include "comm/windows/word_operation.h"

#include <atomic>

namespace unisono::comm {

// Acquire and release: what a rank did before its change is seen by who finds the change.
std::uint64_t change_word(std::byte* place, WordOperation operation, std::uint64_t operand,
                          std::uint64_t expected) {
  const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(place));
  const std::uint64_t before = word.load(std::memory_order_acquire);
  word.store(apply(operation, before, operand, expected), std::memory_order_release);
  return before;
}

}  // namespace unisono::comm
