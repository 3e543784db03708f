// What kernels tell the host of their launches while they run: when each began and ended, and what
// its thread blocks wait for. Written by the kernels, read by the host (engine/gpu/stamps.h).
#pragma once

#include <cstdint>

namespace unisono::device {

// When a launch began and ended, as its kernel tells: both are stored with 16 bytes at once, by the
// first thread block and by the last part that ends. Launches count from 1, and graphs' replays
// count like others. Each word has 16 bits of the count above it, by which the host knows a slot
// that is being stored and one that was stored again.
struct LaunchStamp {
  struct alignas(16) Half {
    std::uint64_t time;  // the device's clock
    std::uint64_t call;  // Stamp::call
  };
  Half begin;
  Half end;
};
inline constexpr int stamp_tag_shift = 48;
inline constexpr std::uint64_t stamp_mask = (std::uint64_t{1} << stamp_tag_shift) - 1;
inline constexpr std::uint64_t stamp_slots = 1024;

// What a launch is given to tell them.
struct Stamp {
  // In device memory, one for each communicator: launches that have ended, above 32 bits that count
  // the parts of the launch that runs which have. 0: this kernel tells nothing.
  std::uint64_t count;
  std::uint64_t call;  // as the host knows it again, below 2^48; and the bit below
};
// Another kernel of the call follows, which tells its end.
inline constexpr std::uint64_t stamp_goes_on = std::uint64_t{1} << 63;

// What a thread block has waited for since its last look at the clock, from the slow path of its
// wait. `what` is stored last; 0: it does not wait. Where several threads of a block wait, the
// words may be of different ones.
struct alignas(16) PublishedWait {
  std::uint32_t what;   // Failure::Kind, 12 bits for the peer + 1, 16 for the channel + 1
  std::uint32_t where;  // 16 bits for the step, 16 for the tile
  std::uint32_t expected;
  std::uint32_t got;
};
inline constexpr int published_blocks = 160;

}  // namespace unisono::device
