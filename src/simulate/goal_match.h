// Finds which message belongs to which receive: by receiver, source and tag, in order.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "simulate/flat_map.h"
#include "simulate/goal.h"
#include "simulate/hash.h"
#include "simulate/time.h"

namespace unisono::simulate::goal {

// A posted receive, or a message that came before its receive.
struct Waiting {
  std::uint32_t source = 0, tag = 0;  // of a receive: may be any
  std::uint32_t operation = 0;        // of the receiver, or of the sender
  Time end = 0;                       // of a message's processing
};

// How receives name messages. A rank's names are a set of bits: which of them its receives use.
enum class Naming : std::uint8_t { whole = 0, any_source = 1, any_tag = 2, anything = 3 };
constexpr Naming naming(std::uint32_t source, std::uint32_t tag) {
  return static_cast<Naming>((source == any ? 1 : 0) + (tag == any ? 2 : 0));
}
constexpr std::uint8_t bit(Naming one) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(one));
}

// Receives that were posted, or messages that came before their receives, of all ranks. Each is
// found by hash, in the order in which they were put, whatever the number that wait.
class Matcher {
 public:
  enum class Holds : std::uint8_t { receives, messages };

  // `names`: by rank.
  Matcher(Holds holds, std::vector<std::uint8_t> names) : holds_(holds), names_(std::move(names)) {}

  void put(std::uint32_t rank, const Waiting& what) {
    const std::uint32_t place = make_entry(what);
    // A message under each name that a receive can have for it.
    if (holds_ == Holds::messages)
      for_names(rank, what.source, what.tag, [&](const Key& key) { append(key, place); });
    else
      append({rank, what.source, what.tag}, place);
  }

  // The first that matches; of messages, `source` and `tag` may be any.
  std::optional<Waiting> take(std::uint32_t rank, std::uint32_t source, std::uint32_t tag) {
    Key found{rank, source, tag};
    std::uint32_t first = none;
    if (holds_ == Holds::messages)
      first = first_of(found);
    else
      for_names(rank, source, tag, [&](const Key& key) {
        const std::uint32_t one = first_of(key);
        if (one == none || (first != none && entries_[first].order < entries_[one].order)) return;
        first = one;
        found = key;
      });
    if (first == none) return std::nullopt;
    const Waiting what = entries_[first].what;
    entries_[first].is_taken = true;
    first_of(found);
    return what;
  }

  struct Left {
    std::uint32_t rank = 0;
    Waiting what;
  };
  // One that still waits, of the smallest rank, and of those the first.
  std::optional<Left> left() const {
    std::optional<Left> result;
    std::uint64_t order = 0;
    queues_.for_each([&](const Key& key, const Queue& queue) {
      for (std::uint32_t link = queue.first; link != none; link = links_[link].next) {
        const Entry& entry = entries_[links_[link].entry];
        if (entry.is_taken) continue;
        if (!result || key.rank < result->rank ||
            (key.rank == result->rank && entry.order < order)) {
          result = Left{key.rank, entry.what};
          order = entry.order;
        }
        break;
      }
    });
    return result;
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;

  struct Key {
    std::uint32_t rank = 0, source = 0, tag = 0;
    bool operator==(const Key&) const = default;
  };
  struct Hashed {
    std::size_t operator()(const Key& key) const {
      return Hash()
          .add(std::uint64_t{key.rank} << 32 | key.source)
          .add(std::uint64_t{key.tag})
          .get();
    }
  };
  struct Entry {
    Waiting what;
    std::uint64_t order = 0;
    std::uint32_t links = 0;  // while it is free, the next that is
    bool is_taken = false;
  };
  // Those under one name, in order.
  struct Link {
    std::uint32_t entry = 0, next = none;
  };
  struct Queue {
    std::uint32_t first = none, last = none;
  };

  template <class Use>
  void for_names(std::uint32_t rank, std::uint32_t source, std::uint32_t tag, Use use) const {
    const std::uint8_t names = names_[rank];
    if ((names & bit(Naming::whole)) != 0) use(Key{rank, source, tag});
    if ((names & bit(Naming::any_source)) != 0) use(Key{rank, any, tag});
    if ((names & bit(Naming::any_tag)) != 0) use(Key{rank, source, any});
    if ((names & bit(Naming::anything)) != 0) use(Key{rank, any, any});
  }

  std::uint32_t make_entry(const Waiting& what) {
    std::uint32_t place = free_entry_;
    if (place == none) {
      place = static_cast<std::uint32_t>(entries_.size());
      entries_.emplace_back();
    } else {
      free_entry_ = entries_[place].links;
    }
    entries_[place] = {.what = what, .order = order_++};
    return place;
  }

  void append(const Key& key, std::uint32_t entry) {
    std::uint32_t link = free_link_;
    if (link == none) {
      link = static_cast<std::uint32_t>(links_.size());
      links_.emplace_back();
    } else {
      free_link_ = links_[link].next;
    }
    links_[link] = {entry, none};
    ++entries_[entry].links;
    Queue& queue = queues_[key];
    (queue.first == none ? queue.first : links_[queue.last].next) = link;
    queue.last = link;
  }

  // The first that was not taken; drops those before it, and a queue that is empty.
  std::uint32_t first_of(const Key& key) {
    Queue* const found = queues_.find(key);
    if (found == nullptr) return none;
    Queue& queue = *found;
    while (queue.first != none) {
      const std::uint32_t link = queue.first;
      const std::uint32_t place = links_[link].entry;
      Entry& entry = entries_[place];
      if (!entry.is_taken) return place;
      queue.first = links_[link].next;
      links_[link].next = free_link_;
      free_link_ = link;
      if (--entry.links > 0) continue;
      entry.links = free_entry_;
      free_entry_ = place;
    }
    queues_.erase(key);
    return none;
  }

  Holds holds_;
  std::vector<std::uint8_t> names_;
  std::vector<Entry> entries_;
  std::vector<Link> links_;
  std::uint32_t free_entry_ = none, free_link_ = none;
  std::uint64_t order_ = 0;
  FlatMap<Key, Queue, Hashed> queues_;
};

}  // namespace unisono::simulate::goal
