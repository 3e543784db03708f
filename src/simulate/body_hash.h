// What a thread block's steps are, but for which chunks they name and how loops write them down.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace unisono::simulate {

// Which of a block's chunks are equally large: the first `equal` of `per_block`. Any other may have
// a size of its own.
struct ChunkSizes {
  std::int64_t per_block = 1;
  std::int64_t equal = 1;
};

// Equal for bodies whose steps, one after another, do the same to as many bytes and wait for the
// same.
std::uint64_t body_hash(const plan::Body& body, const ChunkSizes& chunks);

}  // namespace unisono::simulate
