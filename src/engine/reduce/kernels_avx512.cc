#include "engine/reduce/kernels.h"

namespace unisono::engine {

constinit const KernelTable avx512_kernels = make_table();

}  // namespace unisono::engine
