// What kernels are told of a call's arithmetic.
#pragma once

#include "device/common.h"
#include "engine/engine.h"
#include "plan/plan.h"

namespace unisono::engine::gpu {

device::Arithmetic arithmetic_of(const plan::Header& header, const Arguments& arguments);

}  // namespace unisono::engine::gpu
