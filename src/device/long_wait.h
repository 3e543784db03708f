// What a thread block waits for while its wait takes long, some thousand polls or a millisecond:
// stored by the waiting thread each time that it looks at the clock (sync/wait.cuh), read by the
// host.
#pragma once

#include <cstdint>

namespace unisono::device {

// All zero: the block waits for nothing, or not yet for long. Of numbers the lower bits, which is
// all that a reader needs to find its message or step. Either half is seen whole.
struct alignas(16) LongWait {
  std::uint32_t expected;
  std::uint32_t got;
  std::uint32_t what;   // Failure::Kind in 4 bits, the channel in 12, the peer in 16
  std::uint32_t where;  // the step and the tile, 16 bits each
};
inline constexpr int long_wait_channel_shift = 4;
inline constexpr int long_wait_peer_shift = 16;
inline constexpr int long_wait_tile_shift = 16;
// A larger grid's other blocks do not tell.
inline constexpr int most_long_waits = 1024;

}  // namespace unisono::device
