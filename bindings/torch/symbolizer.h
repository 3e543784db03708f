// What Flight Recorder's dump needs for stack traces, made ready before the dump begins.
//
// PyTorch turns stack traces into text in Python, and imports torch._inductor before the first one.
// That takes ten seconds of processor time where Python has stored no bytecode. Flight Recorder's
// dump waits 15 s for it and then writes one without traces, but the thread that it leaves behind
// aborts the process if the interpreter ends before the import.
#pragma once

#include "device.h"

namespace unisono::pytorch {

// Returns when a dump can have stack traces. Where Python's lock cannot be had, or the import takes
// too long, makes PyTorch's dumps of this process do without them. The caller does not hold the
// lock.
void prepare_stack_traces();
// Waits for the import that this began, for the end of the process.
void await_stack_traces(Deadline deadline);

}  // namespace unisono::pytorch
