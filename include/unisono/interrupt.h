// Lets a host language interrupt calls that wait, as Ctrl-C does in Python.
#pragma once

namespace unisono {

// Has `check` called about every 50 ms by each thread that waits for a call of a communicator,
// without any lock held. When it returns true, that communicator is aborted and the call returns
// the aborted error. nullptr, as at first, removes it. Process-wide; a `check` must stay callable
// forever, because a thread may be inside it when it is replaced.
void set_interrupt_check(bool (*check)());

}  // namespace unisono
