// The chains of messages of a cost, weighed by how far each message goes in the levels.
#pragma once

#include <array>
#include <cstdint>

#include "algorithm/algorithm.h"

namespace unisono::algorithm {

struct LevelChain {
  std::array<std::int64_t, topo::max_levels + 1> steps{};  // by the levels that they leave
  double longer_us = 0;

  LevelChain after(int levels_left, const topo::Levels& levels) const {
    LevelChain out = *this;
    ++out.steps[static_cast<std::size_t>(levels_left)];
    out.longer_us += levels.longer_us(levels_left);
    return out;
  }
  void add(const LevelChain& other, std::int64_t times = 1) {
    for (std::size_t i = 0; i < steps.size(); ++i) steps[i] += times * other.steps[i];
    longer_us += static_cast<double>(times) * other.longer_us;
  }
  void follow(const LevelChain& other) {
    if (other.longer_us > longer_us) *this = other;
  }
};

// Writes a cost's steps: those that another chain of the same length has stay in one unit.
inline void set_steps_leaving(Cost& cost, const LevelChain& chain) {
  cost.steps_leaving = chain.steps;
  std::int64_t known = 0;
  for (const std::int64_t steps : chain.steps) known += steps;
  if (known < cost.steps_inter_node) cost.steps_leaving[0] += cost.steps_inter_node - known;
}

// Finds the `hops` successive edges of a ring of `size` that take longest. `left(i)` says how many
// levels the edge after position i leaves; -1: it stays inside a node.
template <class LevelsLeft>
LevelChain longest_on_ring(const topo::Levels& levels, int size, std::int64_t hops,
                           const LevelsLeft& left) {
  LevelChain once, window;
  const auto along = [&](LevelChain& chain, std::int64_t position, std::int64_t times) {
    LevelChain edge;
    const int here = left(static_cast<int>(position % size));
    if (here >= 0) chain.add(edge.after(here, levels), times);
  };
  for (int i = 0; i < size; ++i) along(once, i, 1);
  const std::int64_t rest = hops % size;
  for (std::int64_t i = 0; i < rest; ++i) along(window, i, 1);
  LevelChain longest = window;
  for (std::int64_t first = 0; first < size && rest > 0; ++first) {
    along(window, first, -1);
    along(window, first + rest, 1);
    longest.follow(window);
  }
  longest.add(once, hops / size);
  return longest;
}

}  // namespace unisono::algorithm
