// Close handshakes that outlive their transport, because a peer does not receive yet: a thread of
// their own makes them, and a process that exits waits for it.
#pragma once

#include "transport/socket/close_handshake.h"

namespace unisono::transport::socket {

// Before the first communicator is made: what that does at the exit then goes first.
void prepare_late_closes();
// Returns at once, unless the process exits or has no thread to give.
void close_late(CloseHandshake& closes);

}  // namespace unisono::transport::socket
