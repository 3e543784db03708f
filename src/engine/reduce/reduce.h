// Element-wise reduction of CPU memory, for all 14 element types, by the best instruction set that
// the processor has. The result of a call depends on its operands alone: it is the same bit for bit
// at every level, at every alignment, and with the operands exchanged, so that ranks on unlike
// machines agree even where each of them computes the same sum for itself.
//
//   integers            wrap around modulo 2^bits.
//   float32, float64    IEEE, no contraction, rounded to nearest even.
//   narrower floats     combined in float32 and rounded once, to nearest even, when stored. float16
//                       and bfloat16 overflow to infinity. The float8 types saturate as CUDA's
//                       __nv_fp8 types and PTX cvt.satfinite do: what exceeds the largest finite
//                       number in magnitude (448, 57344), infinity included, becomes that number.
//   NaN                 in, NaN out, for min and max too (as in PyTorch). Every NaN stored is the
//                       type's one canonical NaN, because processors pick among payloads by operand
//                       order: 0x7fc00000, 0x7ff8000000000000, 0x7e00 (float16), 0x7fc0 (bfloat16),
//                       0x7f (both float8 types, as PyTorch and PTX store it).
//   zeros               min and max order -0 below +0. Infinities of e5m2 pass through min and max.
//
// The thread must be in the default rounding mode. Flushing of denormals, where an application has
// switched it on, affects float32 and float64, and no narrower type.
#pragma once

#include <unisono/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace unisono::engine {

// Elements at destination become a (op) b. Any two of the three may be equal but must not overlap
// partly; none needs to be aligned. count is in elements and may be 0.
using ReduceFunction = void (*)(void* destination, const void* a, const void* b, std::size_t count);

// Looked up once per plan; never null. pre_multiplied_sum combines as sum; average, too, but finite
// operands never give an infinity (scaling.h).
ReduceFunction reduce_function(DataType type, ReduceOperation operation);

// The scalar of pre_multiplied_sum. Integer types use `integer`, modulo 2^bits; float64 uses
// `real`, the other floats use `real` rounded to float32.
struct ScaleFactor {
  double real = 1;
  std::int64_t integer = 1;
};
// One element of `type`, at any alignment, as a factor.
ScaleFactor scale_factor(DataType type, const void* element);
// `value` as a factor for any type; integer types take it rounded towards zero, and saturated.
ScaleFactor scale_factor(double value);

// destination = source * factor, with the rules above; equal or not overlapping.
void scale(DataType type, void* destination, const void* source, std::size_t count,
           ScaleFactor factor);

// destination = source / ranks, of integers, rounded towards zero; equal or not overlapping, ranks
// >= 1.
void divide(DataType type, void* destination, const void* source, std::size_t count, int ranks);

// What the functions above run on: "baseline", "avx2", "avx512" or "neon". The best of the
// processor, capped by Setting::simd when it was first needed.
std::string_view simd_level();

}  // namespace unisono::engine
