// Loads and stores that threads of other blocks, devices or the host see, each named for its order
// and scope. `relaxed` orders nothing else; `acquire` makes what was stored before the value's
// release visible to the loads after it; `release` makes the stores before it visible first. `gpu`
// is this device, `sys` also other devices and the host.
#pragma once

#include <cstdint>

namespace unisono::device::ptx {

__device__ __forceinline__ std::uint64_t load_acquire_sys(const std::uint64_t* at) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

__device__ __forceinline__ std::uint64_t load_acquire_gpu(const std::uint64_t* at) {
  std::uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

__device__ __forceinline__ std::uint64_t load_relaxed_sys(const std::uint64_t* at) {
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

__device__ __forceinline__ std::uint32_t load_relaxed_sys(const std::uint32_t* at) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}

__device__ __forceinline__ void store_release_sys(std::uint64_t* at, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

__device__ __forceinline__ void store_release_sys(std::uint32_t* at, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

__device__ __forceinline__ void store_release_gpu(std::uint64_t* at, std::uint64_t value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

__device__ __forceinline__ void store_relaxed_sys(std::uint64_t* at, std::uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

// 16 bytes at once. Aligned halves of 8 bytes are each seen whole; nothing is said of the two
// together, but for LL128, which needs the 128 bytes that neighbouring threads store to be seen
// with their last 8: true on NVLink.
__device__ __forceinline__ uint4 load_relaxed_sys(const uint4* at) {
  uint4 value;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(at)
               : "memory");
  return value;
}

__device__ __forceinline__ void store_relaxed_sys(uint4* at, uint4 value) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

// Orders what this thread has seen and stored before what it stores and sees after, sys: with a
// relaxed store after it a release, after a relaxed load an acquire.
__device__ __forceinline__ void fence_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// Adds; returns what was there. Relaxed, gpu.
__device__ __forceinline__ std::uint64_t add_relaxed_gpu(std::uint64_t* at, std::uint64_t value) {
  std::uint64_t before;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(at), "l"(value)
               : "memory");
  return before;
}

// They return nothing, so that nothing waits for them. Relaxed, gpu.
__device__ __forceinline__ void reduce_add_gpu(std::uint64_t* at, std::uint64_t value) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
__device__ __forceinline__ void reduce_max_gpu(std::uint64_t* at, std::uint64_t value) {
  asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

}  // namespace unisono::device::ptx
