// The buffers of an interpreted call, relocated where they lie otherwise than the plan's
// (engine/relocation.h). Private memory is a part of the scratch memory.
#pragma once

#include <unisono/result.h>

#include "device/program.h"
#include "engine/gpu/execution.h"
#include "engine/relocation.h"

namespace unisono::engine::gpu {

// Sets the launch's buffers, and copies the input on the call's stream if it must be elsewhere.
// Between before_launch() and after_launch().
Status place_buffers(Resources& resources, const Relocation& relocation, int scratch_blocks,
                     const Arguments& arguments, device::Launch& launch);
// After the kernel, on the same stream: a private output goes to the caller's.
Status copy_back(Resources& resources, const Relocation& relocation, const Arguments& arguments,
                 const device::Launch& launch);

}  // namespace unisono::engine::gpu
