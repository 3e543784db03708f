// A block's __shared__ variables. Kernels' code declares them thread_local, and this library
// resolves the address of each thread_local variable of its own by the block that runs, since the
// fibers of all blocks share one thread. Therefore nothing else in this library is thread_local.
#pragma once

#include <cstddef>

namespace unisono::emulated {

// Bytes that a block needs for them, and their alignment.
struct SharedLayout {
  std::size_t bytes;
  std::size_t alignment;
};
const SharedLayout& shared_layout();

// From now on the variables are those at `memory`.
void use_shared_variables(std::byte* memory);

}  // namespace unisono::emulated
