// A queue whose memory grows as it is needed, up to a bound that its user keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace unisono::transport::socket {

// Items are numbered 0, 1, ... in the order in which they came; those that have not gone are there.
template <class T>
class Ring {
 public:
  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }
  std::uint64_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }

  T& operator[](std::uint64_t number) { return items_[place(number)]; }
  const T& operator[](std::uint64_t number) const { return items_[place(number)]; }

  void push(T item) {
    if (size() == items_.size()) grow();
    items_[place(end_++)] = std::move(item);
  }
  void pop() { ++begin_; }
  // Drops the items from `number` on.
  void truncate(std::uint64_t number) { end_ = number; }
  void clear() { begin_ = end_; }

  std::size_t memory_bytes() const { return items_.size() * sizeof(T); }

 private:
  static constexpr std::size_t first_items = 4;

  // The size is a power of two.
  std::size_t place(std::uint64_t number) const {
    return static_cast<std::size_t>(number) & (items_.size() - 1);
  }
  void grow() {
    std::vector<T> larger(items_.empty() ? first_items : 2 * items_.size());
    for (std::uint64_t number = begin_; number != end_; ++number)
      larger[static_cast<std::size_t>(number) & (larger.size() - 1)] = std::move((*this)[number]);
    items_.swap(larger);
  }

  std::vector<T> items_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace unisono::transport::socket
