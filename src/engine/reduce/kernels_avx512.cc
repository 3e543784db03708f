#include "engine/reduce/kernels.h"

#if !defined(__AVX512F__) || !defined(__F16C__)
#error "compile this file with the flags of its instruction set: cmake/UnisonoLayer.cmake"
#endif

namespace unisono::engine {

constinit const KernelTable avx512_kernels = make_table();

}  // namespace unisono::engine
