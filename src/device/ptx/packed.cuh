// Two narrow floats in a word, added at once: each sum is rounded once, to nearest even, as one in
// float32 that is rounded then is (its 24 bits are at least twice theirs and 2 more), and every NaN
// is the canonical one.
#pragma once

#include <cstdint>

namespace unisono::device::ptx {

__device__ __forceinline__ std::uint32_t add_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sums;
  std::uint32_t are_nan;  // all bits of a half
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
  asm("set.nan.u32.f16x2 %0, %1, %1;" : "=r"(are_nan) : "r"(sums));
  return (sums & ~are_nan) | (are_nan & 0x7e007e00U);
}

#if __CUDA_ARCH__ >= 900
inline constexpr bool adds_bfloat16s = true;
#else
inline constexpr bool adds_bfloat16s = false;
#endif

// Where adds_bfloat16s.
__device__ __forceinline__ std::uint32_t add_bfloat16s(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sums = 0;
  std::uint32_t are_nan = 0;
#if __CUDA_ARCH__ >= 900
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
  asm("set.nan.u32.bf16x2 %0, %1, %1;" : "=r"(are_nan) : "r"(sums));
#endif
  return (sums & ~are_nan) | (are_nan & 0x7fc07fc0U);
}

}  // namespace unisono::device::ptx
