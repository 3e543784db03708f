#include "algorithm/ring.h"

#include <algorithm>

namespace unisono::algorithm {

Ring::Ring(const topo::Placement& placement, int channel, bool backward) : placement_(placement) {
  order_.reserve(static_cast<std::size_t>(placement.ranks()));
  for (int node = 0; node < placement.nodes(); ++node) {
    const int ranks = placement.ranks_on(node);
    for (int i = 0; i < ranks; ++i)
      order_.push_back(placement.rank_at(node, (i + channel) % ranks));
  }
  if (backward) std::reverse(order_.begin(), order_.end());
}

int Ring::position_of(int rank) const {
  return static_cast<int>(std::find(order_.begin(), order_.end(), rank) - order_.begin());
}

int Ring::rank_at(std::int64_t position) const {
  const std::int64_t wrapped = position % size();
  return order_[static_cast<std::size_t>(wrapped < 0 ? wrapped + size() : wrapped)];
}

bool Ring::crosses_after(std::int64_t position) const {
  return !placement_.same_node(rank_at(position), rank_at(position + 1));
}

std::int64_t Ring::max_crossings(std::int64_t hops) const {
  std::int64_t crossings = 0;
  for (std::int64_t i = 0; i < hops; ++i) crossings += crosses_after(i) ? 1 : 0;
  std::int64_t most = crossings;
  for (std::int64_t first = 0; first < size(); ++first) {
    crossings += (crosses_after(first + hops) ? 1 : 0) - (crosses_after(first) ? 1 : 0);
    most = std::max(most, crossings);
  }
  return most;
}

std::vector<std::int64_t> ranks_going_back(const Ring& ring, std::int64_t position, int count) {
  std::vector<std::int64_t> ranks;
  ranks.reserve(static_cast<std::size_t>(std::max(count, 0)));
  for (int i = 0; i < count; ++i) ranks.push_back(ring.rank_at(position - i));
  return ranks;
}

namespace {

struct Progression {
  std::int64_t first = 0;
  std::int64_t stride = 0;
  std::int64_t count = 0;
  bool same_shape(const Progression& other) const {
    return stride == other.stride && count == other.count;
  }
};

std::int64_t difference(std::int64_t a, std::int64_t b, std::int64_t modulus) {
  const std::int64_t value = (a - b) % modulus;
  return value < 0 ? value + modulus : value;
}

std::vector<Progression> progressions_of(const std::vector<std::int64_t>& values,
                                         std::int64_t modulus) {
  std::vector<Progression> result;
  for (std::size_t i = 0; i < values.size();) {
    Progression one{values[i], 0, 1};
    if (i + 1 < values.size()) one.stride = difference(values[i + 1], values[i], modulus);
    while (i + 1 < values.size() && difference(values[i + 1], values[i], modulus) == one.stride) {
      ++one.count;
      ++i;
    }
    if (one.count == 1) one.stride = 0;
    result.push_back(one);
    ++i;
  }
  return result;
}

// From `at` on, `period` progressions repeat `times` times, each time shifted by `shift`.
struct Repetition {
  std::size_t period = 1;
  std::int64_t times = 1;
  std::int64_t shift = 0;
};

Repetition repetition_at(const std::vector<Progression>& all, std::size_t at, std::size_t period,
                         std::int64_t modulus) {
  Repetition result{period, 1, 0};
  if (at + 2 * period > all.size()) return result;
  result.shift = difference(all[at + period].first, all[at].first, modulus);
  std::size_t i = at + period;
  while (i < all.size() && all[i].same_shape(all[i - period]) &&
         difference(all[i].first, all[i - period].first, modulus) == result.shift)
    ++i;
  result.times = static_cast<std::int64_t>((i - at) / period);
  return result;
}

}  // namespace

void for_each_value(plan::BlockBuilder& block, const std::vector<std::int64_t>& values,
                    std::int64_t modulus, std::int64_t scale, std::int64_t offset,
                    const std::function<void(plan::Index)>& body) {
  // A node's ranks are two progressions (its order rotated), at most three where greedy cuts
  // differ.
  constexpr std::size_t max_period = 4;
  const std::vector<Progression> all = progressions_of(values, modulus);
  for (std::size_t at = 0; at < all.size();) {
    Repetition best;
    for (std::size_t period = 1; period <= max_period; ++period) {
      const Repetition one = repetition_at(all, at, period, modulus);
      const auto covered = static_cast<std::size_t>(one.times) * one.period;
      if (one.times > 1 && covered > static_cast<std::size_t>(best.times) * best.period) best = one;
    }
    if (best.times > 1) block.loop(best.times);
    for (std::size_t i = at; i < at + best.period; ++i) {
      const std::size_t depth = best.times > 1 ? 1 : 0;
      plan::Index index = plan::affine(all[i].first, 0, modulus, scale, offset);
      if (best.times > 1) index.coefficient[0] = best.shift;
      if (all[i].count > 1) {
        index.coefficient[depth] = all[i].stride;
        block.loop(all[i].count);
      }
      if (index.is_constant()) index = plan::Index(offset + scale * all[i].first);
      body(index);
      if (all[i].count > 1) block.end_loop();
    }
    if (best.times > 1) block.end_loop();
    at += best.period * static_cast<std::size_t>(best.times);
  }
}

}  // namespace unisono::algorithm
