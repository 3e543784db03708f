#include "algorithm/parts/sequence.h"

#include <algorithm>

namespace unisono::algorithm {
namespace {

std::int64_t difference(std::int64_t x, std::int64_t y, std::int64_t modulus) {
  return x >= y ? x - y : x - y + modulus;
}

}  // namespace

struct StepList::Progression {
  Item first;
  std::int64_t from_stride = 0, to_stride = 0;
  std::int64_t count = 1;

  bool has_shape_of(const Progression& other) const {
    return count == other.count && from_stride == other.from_stride &&
           to_stride == other.to_stride && first.is_like(other.first);
  }
};

// From some place on, `period` progressions come `times` times, each shifted evenly.
struct StepList::Repetition {
  std::size_t period = 1;
  std::int64_t times = 1;
  std::size_t covered() const { return period * static_cast<std::size_t>(times); }
};

std::vector<StepList::Progression> StepList::progressions(std::int64_t modulus) const {
  std::vector<Progression> result;
  for (std::size_t i = 0; i < items_.size();) {
    Progression one{items_[i]};
    for (++i; i < items_.size() && items_[i].is_like(one.first); ++i) {
      const std::int64_t from = difference(items_[i].from, items_[i - 1].from, modulus);
      const std::int64_t to = difference(items_[i].to, items_[i - 1].to, modulus);
      if (one.count > 1 && (from != one.from_stride || to != one.to_stride)) break;
      one.from_stride = from;
      one.to_stride = to;
      ++one.count;
    }
    result.push_back(one);
  }
  return result;
}

StepList::Repetition StepList::repetition_at(const std::vector<Progression>& all, std::size_t at,
                                             std::size_t period, std::int64_t modulus) {
  Repetition result{period, 1};
  if (at + 2 * period > all.size()) return result;
  const auto shifted_as_before = [&](std::size_t i) {
    if (!all[i].has_shape_of(all[i - period])) return false;
    if (i < at + 2 * period) return true;
    const Item& now = all[i].first;
    const Item& before = all[i - period].first;
    const Item& long_before = all[i - 2 * period].first;
    return difference(now.from, before.from, modulus) ==
               difference(before.from, long_before.from, modulus) &&
           difference(now.to, before.to, modulus) == difference(before.to, long_before.to, modulus);
  };
  std::size_t i = at + period;
  while (i < all.size() && shifted_as_before(i)) ++i;
  result.times = static_cast<std::int64_t>((i - at) / period);
  return result;
}

// `next` is the same progression in the next iteration of the loop around it, if there is one.
void StepList::write(plan::BlockBuilder& block, const Progression& it, const Progression* next,
                     std::int64_t modulus) {
  const std::size_t depth = next != nullptr ? 1 : 0;
  const auto index = [&](std::int64_t first, std::int64_t shift, std::int64_t stride) {
    plan::Index result(first);
    if (next != nullptr) result.coefficient[0] = shift;
    if (it.count > 1) result.coefficient[depth] = stride;
    if (!result.is_constant()) result.modulus = modulus;
    return result;
  };
  const std::int64_t from_shift =
      next != nullptr ? difference(next->first.from, it.first.from, modulus) : 0;
  const std::int64_t to_shift =
      next != nullptr ? difference(next->first.to, it.first.to, modulus) : 0;
  plan::Step step{.operation = it.first.operation, .count = it.first.count};
  if (plan::reads_source(step.operation))
    step.source = {it.first.from_buffer, index(it.first.from, from_shift, it.from_stride)};
  if (plan::writes_destination(step.operation))
    step.destination = {it.first.to_buffer, index(it.first.to, to_shift, it.to_stride)};
  if (it.count > 1) block.loop(it.count);
  block.step(std::move(step));
  if (it.count > 1) block.end_loop();
}

void StepList::write_to(plan::BlockBuilder& block, std::int64_t modulus) const {
  // A ring inside a node, with the node's order cut in two by its end: send, twice two pieces of
  // recv_copy_send, recv.
  constexpr std::size_t max_period = 6;
  for (const Item& item : items_)
    if (item.from >= modulus || item.to >= modulus) modulus = std::max(item.from, item.to) + 1;
  const std::vector<Progression> all = progressions(modulus);
  for (std::size_t at = 0; at < all.size();) {
    Repetition best;
    for (std::size_t period = 1; period <= max_period; ++period) {
      const Repetition one = repetition_at(all, at, period, modulus);
      if (one.times > 1 && one.covered() > best.covered()) best = one;
    }
    if (best.times > 1) block.loop(best.times);
    for (std::size_t i = at; i < at + best.period; ++i)
      write(block, all[i], best.times > 1 ? &all[i + best.period] : nullptr, modulus);
    if (best.times > 1) block.end_loop();
    at += best.covered();
  }
}

}  // namespace unisono::algorithm
