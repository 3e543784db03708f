// The CUDA device functions that a library above Unisono needs in addition to a communicator.
// Nothing of CUDA is needed to compile or link; without a driver every function says so.
#pragma once

#include <unisono/result.h>

#include <cstddef>

namespace unisono {

// Belongs to the context that is current on this thread; 0 where none is.
Result<int> current_device();
Result<int> device_count();

// Memory of the current device, for kernels of this and of other processes.
Result<void*> allocate_device_memory(std::size_t bytes);
Status free_device_memory(void* memory);

// Reads device memory when all that is on `stream` of `device` before has run; waits for it. Cannot
// be captured into a graph.
Status read_device_memory(void* host, const void* memory, std::size_t bytes, int device,
                          void* stream);

// Work enqueued on `after` from now on runs after all work that is on `before` now. Both are
// streams of `device`. Can be captured.
Status order_streams(int device, void* before, void* after);

// Records the caller's event on a stream of `device`. Can be captured.
Status record_event(int device, void* event, void* stream);

}  // namespace unisono
