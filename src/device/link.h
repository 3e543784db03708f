// Connections between GPUs, as kernels see them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/common.h"

namespace unisono::device {

// What a receiver posts to the sender of a link: for each of its messages in a tile, or for a large
// transfer, where it is to be put. Messages beyond so many go through slots.
inline constexpr int max_addresses = 63;
// Ranks of a call whose messages can be zero-copy.
inline constexpr int max_mapped_peers = 16;
// A destination that begins elsewhere is reached through slots.
inline constexpr std::size_t address_alignment = unit_bytes;

// One end of a connection in one protocol; see transport/nvlink. Addresses in device memory.
struct Link {
  std::uint64_t out_slots;       // the peer's: messages go there
  std::uint64_t out_arrived;     // the peer's signals: by slot, the last message sent (Simple)
  std::uint64_t out_given_back;  // own signal: messages of ours that the peer has taken
  std::uint64_t in_slots;        // own
  std::uint64_t in_arrived;      // own signals
  std::uint64_t in_given_back;   // the peer's signal
  std::uint64_t out_addresses;   // own PeerAddresses: where the peer wants what is sent
  std::uint64_t in_addresses;    // the peer's PeerAddresses
  std::uint64_t counters;        // own LinkCounters
  // A ring link (transport/ring/link.h) has its message's bytes here, by slot, and all its
  // addresses are of its own host. 0: the peer's memory is mapped.
  std::uint64_t out_bytes;
  std::int32_t peer;
  std::int32_t channel;

  constexpr bool is_ring() const { return out_bytes != 0; }
};

struct LinkCounters {
  std::uint64_t sent;      // messages, of all launches so far
  std::uint64_t received;  // messages taken
  std::uint64_t posted;    // times that this end has said where messages go
  std::uint64_t heeded;    // times that the peer has, as far as they were taken
  // Of a ring link: how many messages of ours the peer has given back, as a kernel saw it last. To
  // ask the host takes a round trip over PCIe.
  std::uint64_t given_back;
};

// By the receiver, in the sender's memory. A post is a credit, too: the destinations may be
// written.
struct PeerAddresses {
  std::uint64_t number;  // of posts, of all launches so far, as a flag; stored last
  // In the sender's addresses, of each message's first tile; 0: through slots.
  std::uint64_t addresses[max_addresses];
};

}  // namespace unisono::device
