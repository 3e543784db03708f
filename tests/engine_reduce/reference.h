// What the reductions must give, one element at a time, written for clarity: numbers as doubles,
// rounding by nearbyint. Elements travel as the low bits of a 64-bit word.
#pragma once

#include <unisono/types.h>

#include <cstdint>

namespace unisono::engine {

// combine: sum, product, min or max of two elements; average: the sum, where only infinite ones
// give infinity.
std::uint64_t reference_combine(DataType type, ReduceOperation operation, std::uint64_t a,
                                std::uint64_t b);
// The integer types use `integer`, the others `real`.
std::uint64_t reference_scale(DataType type, std::uint64_t a, double real, std::int64_t integer);
std::uint64_t reference_divide(DataType type, std::uint64_t a, int ranks);

bool is_signed_integer(DataType type);

}  // namespace unisono::engine
