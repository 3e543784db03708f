#include "verify/rank_sets.h"

#include <algorithm>

#include "base/str.h"

namespace unisono::verify {
namespace {

constexpr std::int32_t past_every_rank = 0x7fffffff;

}  // namespace

RankSets::RankSets(int ranks) {
  intern({});
  for (int rank = 0; rank < ranks; ++rank) {
    const Range own{rank, rank + 1};
    intern({&own, 1});
  }
  const Range everyone{0, ranks};
  all_ = intern({&everyone, 1});
}

std::span<const RankSets::Range> RankSets::ranges(Id set) const {
  const Extent extent = sets_[static_cast<std::size_t>(set)];
  return {arena_.data() + extent.first, extent.count};
}

RankSets::Id RankSets::intern(std::span<const Range> wanted) {
  std::uint64_t hash = 0;
  for (const Range& range : wanted) hash = mix(hash ^ pair_key(range.begin, range.end));
  const auto short_hash = static_cast<std::uint32_t>(hash);
  const Id known =
      by_ranges_.find(short_hash, [&](Id id) { return std::ranges::equal(ranges(id), wanted); });
  if (known >= 0) return known;
  const auto id = static_cast<Id>(sets_.size());
  sets_.push_back(
      {static_cast<std::uint32_t>(arena_.size()), static_cast<std::uint32_t>(wanted.size())});
  arena_.insert(arena_.end(), wanted.begin(), wanted.end());
  by_ranges_.insert(short_hash, id);
  return id;
}

template <class Keep>
RankSets::Id RankSets::sweep(Id a, Id b, Keep keep) {
  const std::span<const Range> left = ranges(a);
  const std::span<const Range> right = ranges(b);
  work_.clear();
  std::size_t i = 0;  // boundaries passed, two a range
  std::size_t j = 0;
  const auto boundary = [](std::span<const Range> set, std::size_t at) {
    if (at >= 2 * set.size()) return past_every_rank;
    return at % 2 == 0 ? set[at / 2].begin : set[at / 2].end;
  };
  bool inside = false;
  while (i < 2 * left.size() || j < 2 * right.size()) {
    const std::int32_t at = std::min(boundary(left, i), boundary(right, j));
    if (boundary(left, i) == at) ++i;
    if (boundary(right, j) == at) ++j;
    const bool now = keep(i % 2 == 1, j % 2 == 1);
    if (now && !inside) work_.push_back({at, past_every_rank});
    if (!now && inside) work_.back().end = at;
    inside = now;
  }
  return intern(work_);
}

RankSets::Union RankSets::unite(Id a, Id b) {
  if (a == none) return {b, true};
  if (b == none) return {a, true};
  if (a == b) return {a, false};
  if (a > b) std::swap(a, b);
  // Sets of few ranges are united faster than they are looked up.
  constexpr std::size_t few = 4;
  const bool remembers = ranges(a).size() + ranges(b).size() > few;
  const std::uint64_t key = pair_key(a, b);
  if (const std::uint64_t* known = remembers ? unions_.find(key) : nullptr)
    return {static_cast<Id>(*known >> 1), (*known & 1) != 0};
  bool disjoint = true;
  const Id set = sweep(a, b, [&](bool in_a, bool in_b) {
    disjoint = disjoint && !(in_a && in_b);
    return in_a || in_b;
  });
  if (remembers) unions_.insert(key, static_cast<std::uint64_t>(set) << 1 | (disjoint ? 1 : 0));
  return {set, disjoint};
}

RankSets::Id RankSets::intersect(Id a, Id b) {
  return sweep(a, b, [](bool in_a, bool in_b) { return in_a && in_b; });
}

RankSets::Id RankSets::without(Id a, Id b) {
  return sweep(a, b, [](bool in_a, bool in_b) { return in_a && !in_b; });
}

bool RankSets::contains(Id set, int rank) const {
  const std::span<const Range> all_ranges = ranges(set);
  const auto after = std::ranges::upper_bound(all_ranges, rank, {}, &Range::begin);
  return after != all_ranges.begin() && rank < (after - 1)->end;
}

int RankSets::size(Id set) const {
  int ranks = 0;
  for (const Range& range : ranges(set)) ranks += range.end - range.begin;
  return ranks;
}

std::string RankSets::describe(Id set) const {
  constexpr int most = 8;
  if (set == none) return "no rank";
  std::vector<std::string> parts;
  for (const Range& range : ranges(set)) {
    if (parts.size() == most) {
      parts.push_back(str("... (", size(set), " ranks)"));
      break;
    }
    const std::int32_t last = range.end - 1;
    if (range.begin == last)
      parts.push_back(str(last));
    else
      parts.push_back(str(range.begin, last == range.begin + 1 ? ", " : "-", last));
  }
  return join(parts);
}

std::size_t RankSets::memory_bytes() const {
  return arena_.capacity() * sizeof(Range) + sets_.size() * sizeof(Extent) +
         by_ranges_.memory_bytes() + unions_.memory_bytes();
}

}  // namespace unisono::verify
