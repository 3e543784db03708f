// Sets of ranks: each distinct one is stored once, and united once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "verify/flat_map.h"
#include "verify/id_table.h"

namespace unisono::verify {

// A set is a sorted list of ranges, so that a ring's runs of ranks stay two numbers however many
// ranks there are. Equal sets have equal numbers.
class RankSets {
 public:
  using Id = std::int32_t;
  static constexpr Id none = 0;

  explicit RankSets(int ranks);

  Id single(int rank) const { return rank + 1; }
  Id all() const { return all_; }

  struct Union {
    Id set;
    bool disjoint;
  };
  Union unite(Id a, Id b);
  Id intersect(Id a, Id b);
  Id without(Id a, Id b);  // a \ b
  bool contains(Id set, int rank) const;
  int size(Id set) const;

  // "0-3, 7", or "no rank"; long sets are cut.
  std::string describe(Id set) const;

  std::size_t memory_bytes() const;

 private:
  struct Range {
    std::int32_t begin;
    std::int32_t end;
    bool operator==(const Range&) const = default;
  };
  struct Extent {
    std::uint32_t first;
    std::uint32_t count;
  };
  std::span<const Range> ranges(Id set) const;
  Id intern(std::span<const Range> wanted);
  // Where `keep` of (in a, in b) holds.
  template <class Keep>
  Id sweep(Id a, Id b, Keep keep);

  std::vector<Range> arena_;
  std::vector<Extent> sets_;
  IdTable by_ranges_;
  FlatMap unions_;
  std::vector<Range> work_;
  Id all_ = none;
};

}  // namespace unisono::verify
