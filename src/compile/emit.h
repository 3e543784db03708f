// The plan of a module that has been through all passes.
#pragma once

#include "compile/module.h"
#include "plan/plan.h"

namespace unisono::compile {

// Runs of equal steps whose chunks advance evenly become loops, so that a ring over 1,024 ranks has
// a handful of steps on each. Sorts the module's waits by instruction.
plan::Plan emit(Module& module);

}  // namespace unisono::compile
