// Copies that leave the destination in memory, not in the caches of this processor.
#pragma once

#include <cstddef>

namespace unisono {

// As memcpy. An ordinary store first fetches its line: from memory, or from the cache of the core
// that used it last, which between far cores costs more than all else of a copy. A streaming store
// writes whole lines without. Worth it where the destination's old contents are far and its new
// ones are not read by this core soon. What is stored here comes before any later store of this
// thread, as with memcpy. Processors without such stores copy as usual.
void stream_copy(void* destination, const void* source, std::size_t bytes);

}  // namespace unisono
