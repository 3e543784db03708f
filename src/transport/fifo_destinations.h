// Zero-copy where nothing is mapped: the address exchange between the two ends of a fifo.
//
// A receiver whose output may be written from the beginning of a call exposes it, and tells the
// sender where in it each message belongs. Such a message goes there directly; its slot then holds
// its header alone. A sender that has not heard in time, or does not want to, fills the slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace unisono::transport {

// For one call; the receiver puts it into the sender's region, where two have room in turn: while
// one lands, the sender may still read the one before.
struct DestinationList {
  static constexpr std::size_t most_messages = 246;

  std::uint64_t number = 0;  // of the lists on this connection, from 1
  std::uint64_t first = 0;   // the number of the call's first message
  RemoteMemory memory;       // that the receiver exposes
  std::uint32_t count = 0;   // of the messages of a tile that follow
  // The first chunk of each; -1: it stays in its slot.
  std::array<std::int32_t, most_messages> chunks;

  std::size_t used_bytes() const {
    return offsetof(DestinationList, chunks) + count * sizeof chunks[0];
  }
};
static_assert(sizeof(DestinationList) == 1024);

}  // namespace unisono::transport
