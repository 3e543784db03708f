#include "plan/index_range.h"

#include <algorithm>
#include <numeric>

namespace unisono::plan {
namespace {

bool add_magnitude(std::int64_t& sum, std::int64_t factor, std::int64_t times) {
  std::int64_t product = 0;
  // The most negative number has no magnitude, and is beyond the limit in any case.
  if (factor == INT64_MIN || times == INT64_MIN) return false;
  const std::int64_t magnitude = factor < 0 ? -factor : factor;
  return !__builtin_mul_overflow(magnitude, times, &product) &&
         !__builtin_add_overflow(sum, product, &sum) && sum <= max_index_magnitude;
}

Range scaled(const Index& index, Range linear) {
  const std::int64_t a = index.offset + index.scale * linear.first;
  const std::int64_t b = index.offset + index.scale * linear.last;
  return {std::min(a, b), std::max(a, b)};
}

Range linear_range(const Index& index, const LoopNest& nest) {
  Range range{index.base, index.base};
  for (std::size_t d = 0; d < nest.counts.size(); ++d) {
    const std::int64_t reach = index.coefficient[d] * (nest.counts[d] - 1);
    (reach < 0 ? range.first : range.last) += reach;
  }
  return range;
}

// Holds every value that the index takes; exact without a modulo. With one, all values of
// (base + c0 i + c1 j) mod m are congruent to base modulo gcd(c0, c1, m).
Range bounds(const Index& index, const LoopNest& nest) {
  const Range linear = linear_range(index, nest);
  if (index.modulus == 0) return scaled(index, linear);
  const Range residues{0, index.modulus - 1};
  if (residues.holds(linear.first) && residues.holds(linear.last)) return scaled(index, linear);
  std::int64_t grain = index.modulus;
  for (std::size_t d = 0; d < nest.counts.size(); ++d)
    if (nest.counts[d] > 1) grain = std::gcd(grain, index.coefficient[d]);
  std::int64_t least = index.base % grain;
  if (least < 0) least += grain;
  return scaled(index, {least, index.modulus - grain + least});
}

}  // namespace

bool fits_64_bits(const Index& index, const LoopNest& nest) {
  std::int64_t linear = 0;
  if (!add_magnitude(linear, index.base, 1)) return false;
  for (std::size_t d = 0; d < nest.counts.size(); ++d)
    if (!add_magnitude(linear, index.coefficient[d], nest.counts[d] - 1)) return false;
  std::int64_t value = 0;
  return add_magnitude(value, index.scale, index.modulus > 0 ? index.modulus : linear) &&
         add_magnitude(value, index.offset, 1);
}

std::optional<Outlier> find_outlier(const Index& index, const LoopNest& nest, Range allowed) {
  const Range reach = bounds(index, nest);
  if (allowed.holds(reach.first) && allowed.holds(reach.last)) return std::nullopt;
  LoopValues loops{};
  for (loops[0] = 0; loops[0] < nest.counts[0]; ++loops[0])
    for (loops[1] = 0; loops[1] < nest.counts[1]; ++loops[1])
      if (const std::int64_t value = index.at(loops); !allowed.holds(value))
        return Outlier{loops, value};
  return std::nullopt;
}

}  // namespace unisono::plan
