// Two narrow floats in a word, added or multiplied at once: each result is rounded once, to nearest
// even, as one in float32 that is rounded then is (its 24 bits are at least twice theirs and 2
// more), and every NaN is the canonical one.
#pragma once

#include <cstdint>

namespace unisono::device::ptx {

__device__ __forceinline__ std::uint32_t canonical_halves(std::uint32_t values) {
  std::uint32_t are_nan;  // all bits of a half
  asm("set.nan.u32.f16x2 %0, %1, %1;" : "=r"(are_nan) : "r"(values));
  return (values & ~are_nan) | (are_nan & 0x7e007e00U);
}
__device__ __forceinline__ std::uint32_t add_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sums;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
  return canonical_halves(sums);
}
__device__ __forceinline__ std::uint32_t multiply_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t products;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(products) : "r"(a), "r"(b));
  return canonical_halves(products);
}

#if __CUDA_ARCH__ >= 900
inline constexpr bool adds_bfloat16s = true;
#else
inline constexpr bool adds_bfloat16s = false;
#endif

// Where adds_bfloat16s, these three.
__device__ __forceinline__ std::uint32_t canonical_bfloat16s(std::uint32_t values) {
  std::uint32_t are_nan = 0;
#if __CUDA_ARCH__ >= 900
  asm("set.nan.u32.bf16x2 %0, %1, %1;" : "=r"(are_nan) : "r"(values));
#endif
  return (values & ~are_nan) | (are_nan & 0x7fc07fc0U);
}
__device__ __forceinline__ std::uint32_t add_bfloat16s(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sums = 0;
#if __CUDA_ARCH__ >= 900
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
#endif
  return canonical_bfloat16s(sums);
}
__device__ __forceinline__ std::uint32_t multiply_bfloat16s(std::uint32_t a, std::uint32_t b) {
  std::uint32_t products = 0;
#if __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(products) : "r"(a), "r"(b));
#endif
  return canonical_bfloat16s(products);
}

}  // namespace unisono::device::ptx
