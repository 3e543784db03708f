// Reading and writing another process's memory (cross-memory attach).
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>

namespace unisono::sys {

// Lets other processes of this user reach this one's memory and copy its descriptors, where the
// kernel (Yama) wants to be told. For zero-copy between processes, and for GPU memory that is
// shared by descriptors; a process that needs neither is left as it is.
void allow_cross_memory_reads();

// Copies `bytes` at `address` of process `pid`. Environment error when the kernel refuses or the
// memory is not there.
Status read_process_memory(std::int32_t pid, void* destination, std::uint64_t address,
                           std::size_t bytes);
// The other way. What may be read may be written.
Status write_process_memory(std::int32_t pid, std::uint64_t address, const void* source,
                            std::size_t bytes);

}  // namespace unisono::sys
