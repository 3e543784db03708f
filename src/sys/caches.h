// The caches of the processor that this process runs on.
#pragma once

#include <cstddef>

namespace unisono::sys {

// What of the caches one core can call its own: the second level, or its part of the third one if
// that is more. As the kernel tells for the first processor; where it does not, 1 MiB.
std::size_t cache_bytes_of_a_core();

// The first processor's cache of the second level; 0 where the kernel does not tell.
std::size_t second_level_bytes();

// The number of processors in one of the kernel's masks, "ff,00000003"; 0 if there is none.
int processors_in_mask(const char* mask);

}  // namespace unisono::sys
