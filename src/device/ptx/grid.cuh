// The kernel before this one on its stream, and the one after it. A launch may ask to begin before
// the one before has ended (Engine::launch()); from compute capability 9.0 on.
#pragma once

namespace unisono::device::ptx {

// Until the kernel before has ended and what it stored can be seen. Nothing of another kernel's may
// be loaded, and nothing stored, before.
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Once all blocks have said so the next kernel's blocks may start, and wait, at the same time.
__device__ __forceinline__ void let_next_kernel_come() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace unisono::device::ptx
