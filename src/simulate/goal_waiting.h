// Operations and messages that wait for a cpu and a port that are busy.
//
// Those that want the same cpu and the same port can begin at the same time, and the oldest of them
// goes first. So only it stands in the event queue, and is tried again when they are free: each is
// tried about twice, not once for each one before it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "simulate/hash.h"

namespace unisono::simulate::goal {

// What waits together: its kind, its cpu, and its port.
struct WaitingClass {
  std::uint32_t kind = 0;
  std::uint32_t port = 0;
  std::uint64_t cpu = 0;
  bool operator==(const WaitingClass&) const = default;
};

// The keys of one class's events: an older event has a smaller one.
class WaitingKeys {
 public:
  void add(std::uint64_t key) { parked_.push(key); }
  // An event that stood in the event queue has happened, or must wait again.
  void remove_queued(std::uint64_t key) { queued_.erase(std::ranges::find(queued_, key)); }
  // The oldest, which must stand in the queue, is not there yet.
  bool must_queue() const {
    return !parked_.empty() &&
           (queued_.empty() || parked_.top() < *std::ranges::min_element(queued_));
  }
  // Its key; from now on it stands in the queue.
  std::uint64_t queue_first() {
    const std::uint64_t key = parked_.top();
    parked_.pop();
    queued_.push_back(key);
    return key;
  }

 private:
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> parked_;
  std::vector<std::uint64_t> queued_;  // one, as a rule
};

class WaitingClasses {
 public:
  WaitingKeys& operator[](const WaitingClass& which) { return keys_[which]; }

 private:
  struct Hashed {
    std::size_t operator()(const WaitingClass& one) const {
      return Hash().add(one.cpu).add(std::uint64_t{one.port} << 8 | one.kind).get();
    }
  };
  std::unordered_map<WaitingClass, WaitingKeys, Hashed> keys_;
};

}  // namespace unisono::simulate::goal
