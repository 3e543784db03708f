// What a thread block waits for while its wait takes long, some thousand polls or a millisecond:
// stored by a waiting thread each time that it looks at the clock (sync/wait.cuh), read by the
// host. It stays when the wait is over; one that goes on has another number of looks soon.
#pragma once

#include <cstdint>

namespace unisono::device {

// All zero: the block has not waited for long. Of numbers the lower bits, which is all that a
// reader needs to find its message or step. Either half is seen whole.
struct alignas(16) LongWait {
  std::uint32_t expected;
  std::uint32_t got;
  std::uint32_t what;   // Failure::Kind in 4 bits, the channel in 12, the peer in 16
  std::uint32_t where;  // the step in 16 bits, the tile in 10, and the thread's looks so far in 6
};
inline constexpr unsigned long_wait_most_kind = 0xf;
inline constexpr unsigned long_wait_most_channel = 0xfff;
inline constexpr unsigned long_wait_most_step = 0xffff;
inline constexpr unsigned long_wait_most_tile = 0x3ff;
inline constexpr int long_wait_channel_shift = 4;
inline constexpr int long_wait_peer_shift = 16;
inline constexpr int long_wait_tile_shift = 16;
inline constexpr int long_wait_look_shift = 26;
inline constexpr std::uint32_t long_wait_given_up = 0x3f;  // instead of looks
// A larger grid's other blocks do not tell.
inline constexpr int most_long_waits = 1024;

}  // namespace unisono::device
