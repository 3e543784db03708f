// The kernels of each instruction set, and the choice among them.
#pragma once

#include <unisono/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/reduce/reduce.h"

namespace unisono::engine {

using ScaleFunction = void (*)(void* destination, const void* source, std::size_t count,
                               ScaleFactor factor);
using DivideFunction = void (*)(void* destination, const void* source, std::size_t count,
                                int ranks);

inline constexpr int combining_operation_count = 5;  // sum, product, min, max, average

// Indexed by DataType, and by the first five of ReduceOperation. A plain aggregate of arrays: the
// files that fill it are compiled for one instruction set and must not emit a shared inline
// function.
struct KernelTable {
  ReduceFunction combine[data_type_count][combining_operation_count];
  ScaleFunction scale[data_type_count];
  DivideFunction divide[data_type_count];  // of integers; the others' are null
};

extern const KernelTable baseline_kernels;
#if defined(__x86_64__)
extern const KernelTable avx2_kernels;
extern const KernelTable avx512_kernels;
#endif

struct Level {
  std::string_view name;
  const KernelTable* kernels;
};

// The levels that this processor can run, worst first; never empty.
std::span<const Level> supported_levels();

// The best supported level that does not exceed `cap`, a level's name; "" caps nothing. A name that
// is not a level's caps nothing either, and `known` says so.
struct LevelChoice {
  Level level;
  bool known = true;
};
LevelChoice choose_level(std::string_view cap);

}  // namespace unisono::engine
