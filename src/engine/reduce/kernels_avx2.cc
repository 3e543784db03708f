#include "engine/reduce/kernels.h"

#if !defined(__AVX2__) || !defined(__F16C__)
#error "compile this file with the flags of its instruction set: cmake/UnisonoLayer.cmake"
#endif

namespace unisono::engine {

constinit const KernelTable avx2_kernels = make_table();

}  // namespace unisono::engine
