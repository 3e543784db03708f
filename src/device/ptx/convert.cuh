// Conversions of the narrow float types, and the clock.
#pragma once

#include <cstdint>

namespace unisono::device::ptx {

// Nanoseconds of a clock that all blocks share; ticks every microsecond or finer.
__device__ __forceinline__ std::int64_t global_time_ns() {
  std::uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return static_cast<std::int64_t>(value);
}

__device__ __forceinline__ float float_of_half(std::uint16_t bits) {
  float value;
  asm("{ .reg .f16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(value) : "h"(bits));
  return value;
}

// To nearest even; overflow is infinity.
__device__ __forceinline__ std::uint16_t half_of_float(float value) {
  std::uint16_t bits;
  asm("{ .reg .f16 h; cvt.rn.f16.f32 h, %1; mov.b16 %0, h; }" : "=h"(bits) : "f"(value));
  return bits;
}

// To nearest even; overflow is infinity.
__device__ __forceinline__ std::uint16_t bfloat16_of_float(float value) {
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

}  // namespace unisono::device::ptx
