// What kernels' stamps say, from a copy of the board that they store to (device/stamps.h).
#pragma once

#include <cstdint>
#include <vector>

#include "device/stamps.h"

namespace unisono::engine::gpu {

struct SeenLaunch {
  std::uint64_t number = 0;      // of the communicator's launches, from 0; replays count
  std::uint64_t call = 0;        // device::Stamp::call
  std::uint64_t begin_time = 0;  // of the device's clock
  std::uint64_t end_time = 0;    // 0: it has not ended
};

// The launches from number `from` on that have ended and are still on the board, in their order; at
// the end the one that has begun and not ended, if there is one.
std::vector<SeenLaunch> read_stamps(const device::StampBoard& board, std::uint64_t from);

}  // namespace unisono::engine::gpu
