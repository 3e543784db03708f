// What a thread block's steps are, but for which chunks they name and how loops write them down.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace unisono::simulate {

// Equal for bodies whose steps, one after another, do the same to as many bytes and wait for the
// same. A block's chunks may differ in size, if there are several.
std::uint64_t body_hash(const plan::Body& body, std::int64_t chunks_per_block);

}  // namespace unisono::simulate
