#include "engine/reduce/kernels.h"

namespace unisono::engine {

constinit const KernelTable avx2_kernels = make_table();

}  // namespace unisono::engine
