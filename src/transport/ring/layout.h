// What lies in the memory that the two ends of a ring link share with their kernels, and what
// travels between them.
//
// A message is one put over an ordinary connection: a header and the payload of one slot, then the
// signal `arrived` with the message's number. Slots lie one after another in both ends' memory, in
// the sender's staging memory and in the receiver's region, at the same offsets. A slot's header
// lies in the `header_room` before it, at its end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace unisono::transport::ring {

inline constexpr int most_slots = 64;
// Of a slot, unless a setting says otherwise: each costs the forwarder a turn, so large calls are
// a tenth faster than with 256 KiB.
inline constexpr std::size_t usual_slot_bytes = 512 << 10;
// Before each slot, so that slots stay aligned as kernels need it.
inline constexpr std::size_t header_room = 128;

struct Header {
  std::uint64_t flag;   // what the receiving kernel waits for: device::flag_of
  std::uint64_t bytes;  // of the payload
};

struct Geometry {
  int slots = 0;  // a power of two
  std::size_t slot_bytes = 0;

  std::size_t stride() const { return header_room + slot_bytes; }
  std::size_t bytes() const { return static_cast<std::size_t>(slots) * stride(); }
  std::size_t slot_of(std::uint64_t number) const {
    return static_cast<std::size_t>((number - 1) % static_cast<std::uint64_t>(slots));
  }
  // Of message `number`, which counts from 1.
  std::size_t payload_at(std::uint64_t number) const {
    return slot_of(number) * stride() + header_room;
  }
  std::size_t header_at(std::uint64_t number) const { return payload_at(number) - sizeof(Header); }
};

// Signals of the connection below; both count from 1 and only grow.
inline constexpr int arrived_signal = 0;     // messages that are in the region
inline constexpr int given_back_signal = 1;  // messages that the peer's kernels have taken
inline constexpr int signal_count = 2;

// In host memory that kernels load and store. Each word has one writer.
struct Words {
  // By the kernel. Release: a slot's payload and its size before its flag; its reads of a slot
  // before the count.
  alignas(128) std::atomic<std::uint64_t> out_flags[most_slots];
  alignas(128) std::atomic<std::uint64_t> out_bytes[most_slots];
  alignas(128) std::atomic<std::uint64_t> taken;
  // By the forwarder. Release: a slot's payload in the region before its flag; the end of all reads
  // of a slot in staging memory before the count.
  alignas(128) std::atomic<std::uint64_t> in_flags[most_slots];
  alignas(128) std::atomic<std::uint64_t> given_back;
};
static_assert(sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t));

}  // namespace unisono::transport::ring
