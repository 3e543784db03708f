#include <algorithm>

#include "algorithm/algorithm.h"

namespace unisono::algorithm {

double longer_us(const Cost& cost, const topo::Levels& levels) {
  if (levels.empty()) return 0;
  double out = 0;
  std::int64_t known = 0;
  for (int left = 0; left <= levels.count(); ++left) {
    const std::int64_t steps = cost.steps_leaving[static_cast<std::size_t>(left)];
    known += steps;
    out += static_cast<double>(steps) * levels.longer_us(left);
  }
  const std::int64_t unknown = std::max<std::int64_t>(cost.steps_inter_node - known, 0);
  return out + static_cast<double>(unknown) * levels.longer_us(levels.most_left());
}

}  // namespace unisono::algorithm
