#include "engine/reduce/kernels.h"

namespace unisono::engine {

constinit const KernelTable baseline_kernels = make_table();

}  // namespace unisono::engine
