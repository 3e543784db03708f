#include "transport/lanes/lanes.h"

#include <algorithm>

namespace unisono::transport {

// Over several rails every put takes an equal part of each: it arrives when the last one has.
// Lanes on one network have nothing to gain from more pieces.
std::size_t Lanes::piece_bytes(std::size_t put_bytes) const {
  if (rails_ == 1) return most_piece_bytes;
  constexpr std::size_t line = 64;
  const std::size_t part = (put_bytes + count_ - 1) / count_;
  return std::min((part + line - 1) / line * line, most_piece_bytes);
}

}  // namespace unisono::transport
