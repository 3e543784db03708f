// Which messages of a program may be zero-copy at any time of a launch.
#pragma once

#include "engine/gpu/lower.h"
#include "plan/zero_copy.h"

namespace unisono::engine::gpu {

// For which messages a receiver can post an address. What a launch that posts does is
// plan::ZeroCopy's plan under these limits, where the receiver has posted what it found mapped.
plan::ZeroCopyLimits zero_copy_limits();

// Gives steps the numbers of plan::early_messages() as Step::in_address and out_address, and counts
// the messages of each block. Fills has_addresses. `program` is what was lowered, without posts.
void mark_addresses(const plan::Header& header, const plan::RankProgram& program,
                    LoweredProgram& lowered);

}  // namespace unisono::engine::gpu
