// Device memory and streams as NCCL's calls meet them: those of CUDA, or host memory in their place
// where UNISONO_NCCL_HOST_MEMORY is set. Streams have no meaning then.
#pragma once

#include <unisono/result.h>

#include <cstddef>

namespace unisono::nccl {

// Whether host memory replaces device memory.
bool host_memory_stands_in();

// The functions of <unisono/device.h> of the same names, or what they are in host memory.
Result<int> current_device();
Result<int> device_count();
Result<void*> allocate_device_memory(std::size_t bytes);
Status free_device_memory(void* memory);
Status read_device_memory(void* host, const void* memory, std::size_t bytes, int device,
                          void* stream);
Status order_streams(int device, void* before, void* after);
Status record_event(int device, void* event, void* stream);

}  // namespace unisono::nccl
