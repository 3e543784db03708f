// TMA bulk copies between global and shared memory, which one thread issues and the SM's copy unit
// makes, from compute capability 9.0 on. Addresses and sizes are multiples of 16.
//
// They go by the asynchronous proxy. Loads are complete, and can be read, once the barrier that
// they are announced to says so; stores once the thread that asked for them has waited.
#pragma once

#include <cstdint>

namespace unisono::device::ptx {

#if __CUDA_ARCH__ >= 900
inline constexpr bool has_bulk_copies = true;
#else
inline constexpr bool has_bulk_copies = false;
#endif

__device__ __forceinline__ unsigned shared_address(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

// A barrier in shared memory, of phases that end once `arrivals` threads have arrived and all bytes
// that were announced are there. Other threads may use it after a barrier of theirs.
__device__ __forceinline__ void make_transfer_barrier(std::uint64_t* barrier, unsigned arrivals) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
  // For the asynchronous proxy too.
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Arrives, and announces `bytes` to come. Release, among the block's threads.
__device__ __forceinline__ void announce_bytes(std::uint64_t* barrier, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
#endif
}

// Whether the phase, 0 and 1 in turn, has ended; waits for it some microseconds at most. Acquire:
// the bytes that were announced.
__device__ __forceinline__ bool has_phase_ended(std::uint64_t* barrier, unsigned phase) {
  std::uint32_t has_ended = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(has_ended)
      : "r"(shared_address(barrier)), "r"(phase)
      : "memory");
#endif
  return has_ended != 0;
}

__device__ __forceinline__ void load_tma(void* shared, const void* global, unsigned bytes,
                                         std::uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#endif
}

// To be closed into a group, by the same thread.
__device__ __forceinline__ void store_tma(void* global, const void* shared, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
#endif
}

__device__ __forceinline__ void close_group_of_stores() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}

// Until of this thread's groups all but the last `groups` have read their shared memory.
template <int groups>
__device__ __forceinline__ void wait_until_stores_have_read() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
#endif
}

// Until all of this thread's stores are complete and visible to it: what it releases then covers
// them.
__device__ __forceinline__ void wait_until_stores_are_complete() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

// Orders this thread's ordinary accesses, and those that it has acquired, before and after bulk
// copies of the same memory: global and shared, or only shared.
__device__ __forceinline__ void fence_bulk_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}
__device__ __forceinline__ void fence_bulk_copies_of_shared() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace unisono::device::ptx
