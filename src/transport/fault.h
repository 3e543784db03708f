// Faults as they travel, and the errors that they become at the receiving end.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <optional>

#include "transport/transport.h"

namespace unisono::transport {

// One word, 0 for no fault; so that a fault is stored and seen in one piece.
std::uint64_t pack(const Fault& fault);
// One that pack() made here.
Fault unpack(std::uint64_t word);
// What a peer told, of a communicator of `ranks`: nothing where the kind is unknown or no rank of
// it is blamed.
std::optional<Fault> unpack_fault(std::uint64_t word, int ranks);
// The peer told a fault that cannot be unpacked.
Error impossible_fault(int peer, std::uint64_t word, int ranks);

// Makes an error of what `peer` told. It names `peer` where no rank is at fault, because calls do
// not match or the network is to blame.
Error told_error(int peer, const Fault& fault);
// What this end itself was given up for.
Error own_error(int peer, const Fault& fault);
// The other way: what rank `self` tells its peers of an error that it gives up for.
Fault fault_of(const Error& error, int self);

}  // namespace unisono::transport
