// What the host gives a kernel: addresses, and what it says of peers.
#pragma once

#include <cstdint>

namespace unisono::device {

template <class T>
__device__ __forceinline__ T* at_address(std::uint64_t address) {
  return reinterpret_cast<T*>(address);
}

// Reads of all that the peers' parameters are, before the kernel waits for the one before: they
// come by lines of 64 bytes, each of which takes its time.
template <int most, class Launch>
__device__ __forceinline__ bool has_peers(const Launch& launch) {
  std::uint64_t all = 0;
#pragma unroll
  for (int peer = 0; peer < most; ++peer)
    all |= launch.peers[peer].source | launch.peers[peer].out | launch.peers[peer].in;
  return all != 0;
}

}  // namespace unisono::device
