// A hash table of numbers, whose keys their owner keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace unisono::verify {

// Open addressing, linear probing, at most half full. Nothing is ever removed. A slot is eight
// bytes, part of the hash and the number: the tables of a large proof are read at random, so what
// counts is how much of them a cache holds.
class IdTable {
 public:
  static constexpr std::int32_t none = -1;

  IdTable() : slots_(64) {}

  // The number whose key has this hash, and for which `is_it(number)` holds.
  template <class IsIt>
  std::int32_t find(std::uint32_t hash, IsIt is_it) const {
    for (std::size_t i = home(hash);; i = next(i)) {
      const Slot& slot = slots_[i];
      if (slot.id == none) return none;
      if (slot.hash == hash && is_it(slot.id)) return slot.id;
    }
  }

  // The number must not be there yet, nor another one with its key.
  void insert(std::uint32_t hash, std::int32_t id) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    place({hash, id});
    ++size_;
  }

  std::size_t memory_bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = none;
  };

  std::size_t home(std::uint32_t hash) const { return hash & (slots_.size() - 1); }
  std::size_t next(std::size_t slot) const { return (slot + 1) & (slots_.size() - 1); }

  void place(Slot slot) {
    std::size_t i = home(slot.hash);
    while (slots_[i].id != none) i = next(i);
    slots_[i] = slot;
  }

  void grow() {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.size() * 2));
    for (const Slot& slot : old)
      if (slot.id != none) place(slot);
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace unisono::verify
