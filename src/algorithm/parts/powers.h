// Powers of two, and how any number of ranks is folded onto one.
#pragma once

#include <bit>
#include <cstdint>

namespace unisono::algorithm {

// The smallest k with 2^k >= n; n >= 1.
inline int ceil_log2(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }
// The largest k with 2^k <= n; n >= 1.
inline int floor_log2(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }

// The lowest `bits` bits of `value` in the opposite order.
inline int reverse_bits(int value, int bits) {
  int reversed = 0;
  for (int bit = 0; bit < bits; ++bit) reversed |= ((value >> bit) & 1) << (bits - 1 - bit);
  return reversed;
}

// p ranks as a core of 2^m, the largest power of two that fits, and rem = p - 2^m others: of each
// of the first rem pairs (2i, 2i + 1) the even rank is folded into the odd one, which acts for
// both.
struct Fold {
  explicit Fold(int ranks) : bits(floor_log2(ranks)), size(1 << bits), remainder(ranks - size) {}

  int bits;
  int size;  // of the core
  int remainder;

  bool is_folded(int rank) const { return rank < 2 * remainder && rank % 2 == 0; }
  bool acts_for_two(int rank) const { return rank < 2 * remainder && rank % 2 == 1; }
  // The index in the core of a rank that is not folded, and back.
  int index_of(int rank) const { return rank < 2 * remainder ? rank / 2 : rank - remainder; }
  int rank_of(int index) const { return index < remainder ? 2 * index + 1 : index + remainder; }
};

}  // namespace unisono::algorithm
