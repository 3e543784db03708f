// A libcuda.so.1 that does nothing, on which gpu_call_bench counts what a call costs the host:
// kernels do not run, events have happened, memory is the host's. Here is every function without a
// result; weak, because results.cc has its own of some.
#include "sys/cuda/driver.h"

namespace unisono::sys::cuda {

#define UNISONO_NOTHING(name, symbol, parameters)                           \
  __attribute__((weak)) DriverResult nothing_##name parameters asm(symbol); \
  DriverResult nothing_##name parameters { return driver_success; }
#pragma GCC diagnostic ignored "-Wunused-parameter"
UNISONO_CUDA_FUNCTIONS(UNISONO_NOTHING)
#undef UNISONO_NOTHING

}  // namespace unisono::sys::cuda
