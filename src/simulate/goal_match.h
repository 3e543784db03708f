// Finds which message belongs to which receive: by receiver, source and tag, in order.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "simulate/goal.h"
#include "simulate/time.h"

namespace unisono::simulate::goal {

// A posted receive, or a message that came before its receive.
struct Waiting {
  std::uint32_t source = 0, tag = 0;  // of a receive: may be any
  std::uint32_t operation = 0;        // of the receiver, or of the sender
  Time end = 0;                       // of a message's processing
};

// What waits, of all ranks. Without wildcards it is found by hash, and a queue that is empty is
// gone; ranks that receive from any source or with any tag keep one list.
class Matcher {
 public:
  explicit Matcher(const std::vector<bool>& has_wildcards) : lists_(has_wildcards.size()) {
    for (const bool wildcards : has_wildcards) is_listed_.push_back(wildcards);
  }

  void put(std::uint32_t rank, const Waiting& what) {
    if (is_listed_[rank])
      lists_[rank].push_back(what);
    else
      queues_[{rank, what.source, what.tag}].push_back(what);
  }

  // The first that matches; `source` and `tag` may be any.
  std::optional<Waiting> take(std::uint32_t rank, std::uint32_t source, std::uint32_t tag) {
    if (is_listed_[rank]) {
      std::list<Waiting>& list = lists_[rank];
      for (auto one = list.begin(); one != list.end(); ++one) {
        if (!fits(one->source, source) || !fits(one->tag, tag)) continue;
        const Waiting found = *one;
        list.erase(one);
        return found;
      }
      return std::nullopt;
    }
    const auto queue = queues_.find({rank, source, tag});
    if (queue == queues_.end()) return std::nullopt;
    const Waiting found = queue->second.front();
    queue->second.pop_front();
    if (queue->second.empty()) queues_.erase(queue);
    return found;
  }

  struct Left {
    std::uint32_t rank = 0;
    Waiting what;
  };
  // One that still waits, of the smallest rank.
  std::optional<Left> left() const {
    std::optional<Left> result;
    const auto offer = [&](std::uint32_t rank, const Waiting& what) {
      if (!result || rank < result->rank) result = Left{rank, what};
    };
    for (const auto& [key, queue] : queues_) offer(key.rank, queue.front());
    for (std::uint32_t rank = 0; rank < lists_.size(); ++rank)
      if (!lists_[rank].empty()) offer(rank, lists_[rank].front());
    return result;
  }

 private:
  static bool fits(std::uint32_t a, std::uint32_t b) { return a == b || a == any || b == any; }

  struct Key {
    std::uint32_t rank, source, tag;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      const std::uint64_t x = (std::uint64_t{key.rank} << 32) | key.source;
      return (x ^ (std::uint64_t{key.tag} << 20)) * 0x9e3779b97f4a7c15;
    }
  };

  std::vector<bool> is_listed_;
  std::vector<std::list<Waiting>> lists_;  // by rank
  std::unordered_map<Key, std::list<Waiting>, Hash> queues_;
};

}  // namespace unisono::simulate::goal
