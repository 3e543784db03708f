// Where the chunks of a block lie: the same arithmetic for every reader of a plan.
#pragma once

#include <cstdint>

namespace unisono::plan {

// Divides a block of `count` elements into `chunks` chunks: all of `chunk_elements`, but the last
// non-empty one may be shorter, and those after it are empty.
//
// chunk_elements = ceil(count / chunks), rounded up so that a chunk is a multiple of 64 bytes (a
// cache line, and LL128's and vector units' grain) once it has at least 512, and of 512 bytes (what
// a warp stores at once: whole packets of NVLink) once it has 16 KiB: rounding smaller ones would
// leave ranks without work.
struct ChunkLayout {
  std::int64_t count = 0;
  std::int64_t chunk_elements = 0;

  static constexpr ChunkLayout of(std::int64_t count, int chunks, std::int64_t element_bytes) {
    std::int64_t elements = (count + chunks - 1) / chunks;
    const std::int64_t bytes = elements * element_bytes;
    const std::int64_t grain = bytes < 512 ? 1 : (bytes < 16384 ? 64 : 512) / element_bytes;
    return {count, (elements + grain - 1) / grain * grain};
  }

  // First element of chunk i of the block, at most `count`.
  constexpr std::int64_t begin(std::int64_t chunk) const {
    const std::int64_t first = chunk * chunk_elements;
    return first < count ? first : count;
  }
  constexpr std::int64_t end(std::int64_t chunk) const { return begin(chunk + 1); }
  constexpr std::int64_t elements(std::int64_t chunk) const { return end(chunk) - begin(chunk); }
};

}  // namespace unisono::plan
