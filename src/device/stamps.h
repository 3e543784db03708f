// What kernels tell of their launches: when each began and ended. Stored by the kernels
// (sync/stamp.cuh), read by the host (engine/gpu/stamps.h).
#pragma once

#include <cstdint>

namespace unisono::device {

// A launch's times on the device's clock.
struct LaunchStamp {
  struct alignas(16) Begin {
    std::uint64_t time;
    std::uint64_t call;  // Stamp::call, below 16 bits of the launch's number
  };
  Begin begin;        // stored by the first thread block when it ends
  std::uint64_t end;  // the latest that any block stored; older than the begin: none has
  std::uint64_t unused;
};
inline constexpr int stamp_tag_shift = 48;
inline constexpr std::uint64_t stamp_slots = 1024;

// In device memory, one for each communicator, so that no kernel waits for the host's memory.
// Launches of a communicator follow each other, and graphs' replays count like others.
struct StampBoard {
  // Launches that have ended, above 32 bits of the one that runs. Each launch adds 2^32 in all, so
  // that the upper half stays the same until its last block has ended: the first block adds what
  // the others, which add 1 each, leave of it.
  alignas(128) std::uint64_t ended;
  alignas(128) LaunchStamp::Begin current;  // the launch that began last; its call without a tag
  alignas(128) LaunchStamp stamps[stamp_slots];  // of launch n, from 0, at n % stamp_slots
};

// What a launch is given for them.
struct Stamp {
  std::uint64_t board;  // 0: the kernel tells nothing
  std::uint64_t call;   // as the host knows it again, below 2^48; and the bit below
};
// Another kernel of the call follows, which tells its end.
inline constexpr std::uint64_t stamp_goes_on = std::uint64_t{1} << 46;

}  // namespace unisono::device
