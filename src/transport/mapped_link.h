// What can be loaded and stored of a connection whose peer's memory is mapped here.
//
// Two types, by who does it: the host's processors, over shared memory, or a GPU's kernels and copy
// engines, over NVLink. A connection has one of them or none, both ends the same; code that loads
// and stores takes the type that it needs, and so cannot be given a connection of another kind.
// A signal that is stored with release, after the data, is a put.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "sys/cuda/driver.h"

namespace unisono::transport {

// The peer's region and signals. What is loaded or stored in the region has been reserved before,
// by either end: Connection::reserve_at_peer().
struct HostLink {
  std::byte* region = nullptr;
  std::atomic<std::uint64_t>* signals = nullptr;
};

// In the memory of GPUs: this end's own region and signals, known at once, and the peer's. All are
// aligned to `alignment`, zeroed at first, and taken whole when the connection is made. Of each end
// there are also host_bytes in memory of the host, zeroed at first, which both processes load and
// store.
struct DeviceLink {
  static constexpr std::size_t alignment = 256;
  static constexpr std::size_t host_bytes = 2048;

  sys::cuda::DeviceAddress region = 0;
  sys::cuda::DeviceAddress signals = 0;
  sys::cuda::DeviceAddress peer_region = 0;
  sys::cuda::DeviceAddress peer_signals = 0;
  std::byte* host = nullptr;
  std::byte* peer_host = nullptr;
};

}  // namespace unisono::transport
