// A hash table from 64-bit keys to 64-bit values: what the memo tables of a proof spend their time
// in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace unisono::verify {

inline std::uint64_t pair_key(std::int32_t a, std::int32_t b) {
  return std::uint64_t{static_cast<std::uint32_t>(a)} << 32 | static_cast<std::uint32_t>(b);
}

// The finaliser of SplitMix64: keys are pairs of small numbers, whose low bits alone would collide.
inline std::uint64_t mix(std::uint64_t key) {
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
  return key ^ (key >> 31);
}

// Open addressing, linear probing, at most half full. Nothing is ever removed. A key is never
// the largest 64-bit number.
class FlatMap {
 public:
  FlatMap() : slots_(64) {}

  // The value of `key`, or null; valid until the next insert.
  const std::uint64_t* find(std::uint64_t key) const {
    for (std::size_t i = home(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == empty) return nullptr;
    }
  }

  // `key` must not be there yet.
  void insert(std::uint64_t key, std::uint64_t value) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    place({key, value});
    ++size_;
  }

  std::size_t memory_bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  static constexpr std::uint64_t empty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = empty;
    std::uint64_t value = 0;
  };

  std::size_t home(std::uint64_t key) const {
    return static_cast<std::size_t>(mix(key)) & (slots_.size() - 1);
  }

  void place(Slot slot) {
    std::size_t i = home(slot.key);
    while (slots_[i].key != empty) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }

  void grow() {
    std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.size() * 2));
    for (const Slot& slot : old)
      if (slot.key != empty) place(slot);
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace unisono::verify
