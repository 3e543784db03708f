// What the kernels of the bench are given.
#pragma once

#include <cstdint>

namespace unisono::python {

inline constexpr int bench_threads = 512;

// Elements that repeat a table, which begins at its element `phase`.
struct RepeatedTable {
  std::uint64_t table = 0;  // device memory
  std::uint64_t period = 1;
  std::uint64_t phase = 0;
  std::uint64_t count = 0;
  std::uint32_t width = 1;  // bytes of an element: 1, 2, 4 or 8
};

inline constexpr int max_push_peers = 15;

// `units` times 16 bytes, from `own` to each of the addresses.
struct PushTargets {
  std::uint64_t own = 0;
  std::uint64_t units = 0;
  std::int32_t peers = 0;
  std::uint64_t addresses[max_push_peers] = {};
};

}  // namespace unisono::python
