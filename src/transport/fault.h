// Faults as they travel, and the errors that they become at the end that is told.
#pragma once

#include <unisono/result.h>

#include <cstdint>

#include "transport/transport.h"

namespace unisono::transport {

// One word, 0 for no fault; so that a fault is stored and seen in one piece.
std::uint64_t pack(const Fault& fault);
// An unknown kind, which only a broken peer sends, becomes a protocol violation of unknown rank.
Fault unpack_fault(std::uint64_t word);

// What `peer` told us.
Error told_error(int peer, const Fault& fault);
// What this end itself was given up for.
Error own_error(int peer, const Fault& fault);

}  // namespace unisono::transport
