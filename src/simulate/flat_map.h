// A hash table in one array: for small keys that come and go in millions.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace unisono::simulate {

// Linear probing; what is erased leaves no gap behind, so a table that empties is as fast as a new
// one. A reference holds until the next insertion or erasure.
template <class Key, class Value, class Hash>
class FlatMap {
 public:
  // nullptr if there is none.
  Value* find(const Key& key) {
    if (size_ == 0) return nullptr;
    const std::size_t place = place_of(key);
    return slots_[place].is_used ? &slots_[place].value : nullptr;
  }
  // Made anew if there is none.
  Value& operator[](const Key& key) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[place_of(key)];
    if (!slot.is_used) {
      slot = {key, Value{}, true};
      ++size_;
    }
    return slot.value;
  }
  void erase(const Key& key) {
    if (size_ == 0) return;
    std::size_t gap = place_of(key);
    if (!slots_[gap].is_used) return;
    // What was put further on for want of a place moves up.
    for (std::size_t next = after(gap); slots_[next].is_used; next = after(next)) {
      const std::size_t home = home_of(slots_[next].key);
      if (distance(home, next) < distance(gap, next)) continue;
      slots_[gap] = std::move(slots_[next]);
      gap = next;
    }
    slots_[gap] = {};
    --size_;
  }
  std::size_t size() const { return size_; }
  template <class Use>
  void for_each(Use use) const {
    for (const Slot& slot : slots_)
      if (slot.is_used) use(slot.key, slot.value);
  }

 private:
  struct Slot {
    Key key{};
    Value value{};
    bool is_used = false;
  };

  static constexpr std::size_t first_size = 64;

  std::size_t home_of(const Key& key) const { return Hash()(key) & (slots_.size() - 1); }
  std::size_t after(std::size_t place) const { return (place + 1) & (slots_.size() - 1); }
  std::size_t distance(std::size_t from, std::size_t to) const {
    return (to - from) & (slots_.size() - 1);
  }
  // Where it is, or would be.
  std::size_t place_of(const Key& key) const {
    std::size_t place = home_of(key);
    while (slots_[place].is_used && !(slots_[place].key == key)) place = after(place);
    return place;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? first_size : slots_.size() * 2);
    old.swap(slots_);
    for (Slot& slot : old)
      if (slot.is_used) slots_[place_of(slot.key)] = std::move(slot);
  }

  std::vector<Slot> slots_;  // a power of two, at least half of them free
  std::size_t size_ = 0;
};

}  // namespace unisono::simulate
