// Which messages of a program may be put straight where they are wanted, at any time of a launch.
#pragma once

#include "engine/gpu/lower.h"

namespace unisono::engine::gpu {

// Numbers the messages of each link, and marks the steps that plan::receives_early() finds: a
// launch in which they are posted does what plan::ZeroCopy's one-sided plan does where the sender
// reaches the receiver's output. Fills Step::in_address and out_address, and has_addresses.
// `program` is what was lowered, without posts.
void mark_addresses(const plan::Header& header, const plan::RankProgram& program,
                    LoweredProgram& lowered);

}  // namespace unisono::engine::gpu
