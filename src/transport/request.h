// What every transport refuses in a request to connect.
#pragma once

#include <unisono/result.h>

#include "transport/transport.h"

namespace unisono::transport {

// Both ends' address space for one direction; far above any use, far below what overflows a sum.
inline constexpr std::size_t max_region_bytes = std::size_t{1} << 40;
// One page of them would do: fifo.h uses a line for each of two signals of three protocols.
inline constexpr int max_signals = 4096;

Status check_request(const ConnectionRequest& request);
Status check_geometry(const Geometry& geometry);

// Puts outside the peer's region or signals.
Status check_put(const Geometry& geometry, int peer, std::size_t bytes, std::size_t offset,
                 const Signal& signal);

// Puts into memory that the peer exposes; where it lies and ends is the peer's to check.
Status check_put_to(const Geometry& geometry, int peer, const RemoteMemory& memory,
                    const Signal& signal);

// Gets from memory that the peer does not expose.
Status check_get(int peer, const RemoteMemory& memory);

// The two ends of a connection were given different geometries.
Error geometry_mismatch(int peer, const Geometry& theirs, const Geometry& ours);

// The peer has closed its end while this one waits for it: see Connection::check_peer().
Error peer_left(int peer);

// The key for one purpose of one connection, of all that derive from the job's.
Key derive_connection_key(const Key& job_key, std::string_view purpose, const ConnectionKey& key,
                          int low_rank, int high_rank);

// The peer has left the communicator and is in newer epochs alone.
Error past_epoch(int peer, const ConnectionKey& key);
// "communicator 31, epoch 0, channel 2".
std::string describe(const ConnectionKey& key);

// This process has no descriptor left for a connection: not the peer's fault.
Error no_descriptors(int self, int peer, const Error& why);

}  // namespace unisono::transport
