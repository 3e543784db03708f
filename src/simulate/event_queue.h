// The pending events of a simulation: a 4-ary heap of 16-byte entries.
//
// Events happen in the order of (time, key). A key says what happens to whom, so the order of equal
// times does not depend on the order of insertion, and a run is the same whatever its memory looked
// like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "simulate/time.h"

namespace unisono::simulate {

struct Event {
  Time time = 0;
  std::uint64_t key = 0;
};

inline bool before(const Event& a, const Event& b) {
  return a.time < b.time || (a.time == b.time && a.key < b.key);
}

class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  std::size_t largest_size() const { return largest_; }
  const Event& first() const { return heap_.front(); }

  void push(Event event) {
    std::size_t hole = heap_.size();
    heap_.push_back(event);
    if (heap_.size() > largest_) largest_ = heap_.size();
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / arity;
      if (!before(event, heap_[parent])) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = event;
  }

  Event pop() {
    const Event least = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sift_down(last);
    return least;
  }

 private:
  static constexpr std::size_t arity = 4;

  void sift_down(Event event) {
    const std::size_t size = heap_.size();
    std::size_t hole = 0;
    while (true) {
      const std::size_t first_child = hole * arity + 1;
      if (first_child >= size) break;
      const std::size_t end = first_child + arity < size ? first_child + arity : size;
      std::size_t least = first_child;
      for (std::size_t child = first_child + 1; child < end; ++child)
        if (before(heap_[child], heap_[least])) least = child;
      if (!before(heap_[least], event)) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = event;
  }

  std::vector<Event> heap_;
  std::size_t largest_ = 0;
};

}  // namespace unisono::simulate
