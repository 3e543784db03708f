// What PyTorch's pluggable allocator calls, by name: see python/unisono/torch/memory.py.

#include <unisono/device.h>

#include <cstddef>

extern "C" {

// Null where there is no memory, as the allocator expects it. The device is the current one.
__attribute__((visibility("default"))) void* unisono_pool_allocate(std::ptrdiff_t bytes,
                                                                   int /*device*/,
                                                                   void* /*stream*/) {
  auto memory = unisono::allocate_device_memory(static_cast<std::size_t>(bytes));
  return memory.ok() ? *memory : nullptr;
}

__attribute__((visibility("default"))) void unisono_pool_free(void* memory,
                                                              std::ptrdiff_t /*bytes*/,
                                                              int /*device*/, void* /*stream*/) {
  // What cannot be freed has gone with its context.
  static_cast<void>(unisono::free_device_memory(memory));
}

}  // extern "C"
