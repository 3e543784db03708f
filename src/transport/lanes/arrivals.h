// The receiver's half of lanes: which pieces have come, whichever lanes brought them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unisono::transport {

class Arrivals {
 public:
  // A piece is counted when fewer than so many of those before it are missing or were overtaken. A
  // lane that is further ahead is not read until the others have caught up, so memory is bounded
  // whatever a peer sends.
  static constexpr std::uint64_t window = 4096;

  enum class Outcome : std::uint8_t {
    counted,
    repeated,  // has come before
    ahead,     // outside of the window: to be told again when in_order() has grown
  };
  Outcome note(std::uint64_t number);
  // All pieces with smaller numbers have come.
  std::uint64_t in_order() const { return in_order_; }

  std::size_t memory_bytes() const { return overtaken_by_.capacity() / 8; }

 private:
  std::uint64_t in_order_ = 0;
  // Whether a piece of the window has come, by its number modulo the window. Made when a piece
  // overtakes another one; where there is one lane, never.
  std::vector<bool> overtaken_by_;
};

}  // namespace unisono::transport
