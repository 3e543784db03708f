// What lies in a connection's device memory; the same at both ends.
#pragma once

#include <cstddef>

namespace unisono::transport::nvlink {

// A region begins with this end's own device::LinkCounters and its device::Link, on a line of their
// own; the slots of what the peer sends follow.
inline constexpr std::size_t link_offset = 32;
inline constexpr std::size_t slots_offset = 128;

// Signals of an end, each on a line of its own because it is polled: messages that have arrived,
// messages of ours that the peer has given back, and where the peer wants those that come next
// (device::Posts).
inline constexpr int arrived_signal = 0;
inline constexpr int credit_signal = 16;
inline constexpr int addresses_signal = 32;
inline constexpr int signal_count = 96;

}  // namespace unisono::transport::nvlink
