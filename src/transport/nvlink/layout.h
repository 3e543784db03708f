// What lies in a connection's device memory; the same at both ends.
#pragma once

#include <cstddef>

namespace unisono::transport::nvlink {

// A region begins with this end's own device::LinkCounters and its device::Link, on a line of their
// own; the slots of what the peer sends follow.
inline constexpr std::size_t link_offset = 40;
inline constexpr std::size_t slots_offset = 128;

// Signals of an end, on lines of their own because they are polled: by slot, the message that has
// arrived; messages of ours that the peer has given back; and where the peer wants those that come
// next (device::PeerAddresses).
inline constexpr int most_slots = 64;
inline constexpr int arrived_signal = 0;
inline constexpr int credit_signal = arrived_signal + most_slots;
inline constexpr int addresses_signal = credit_signal + 16;
inline constexpr int signal_count = addresses_signal + 64;

}  // namespace unisono::transport::nvlink
