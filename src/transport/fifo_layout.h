// Where the slots and signals of each protocol lie; the same at both ends.
#pragma once

#include <unisono/types.h>

#include <cstddef>
#include <cstdint>

#include "base/fingerprint.h"
#include "transport/fifo.h"
#include "transport/fifo_destinations.h"

namespace unisono::transport {

// A region holds the slots of one direction. In mapped memory they are those of Simple, then of LL,
// then of LL128; elsewhere one set of slots, each as large as the largest message of any protocol.
// A slot is aligned to a line of LL128 (two cache lines, which processors also fetch in pairs).
//
// In mapped memory a message of Simple has a head: its header, and room behind it for a short
// message. Heads are many and near each other; the slots, before which they lie, take what is
// longer. So a sender of short messages may be far ahead of a receiver that has no core at the
// moment, in a few pages, and all large messages together stay in the caches.
inline constexpr std::size_t slot_alignment = 128;
// LL: 4 bytes of each 8. LL128: 120 bytes of each 128.
inline constexpr std::size_t ll_word_payload = 4;
inline constexpr std::size_t ll_word_bytes = 8;
inline constexpr std::size_t ll128_line_payload = 120;
inline constexpr std::size_t ll128_line_bytes = 128;
// LL128's flag has 24 bits for the message's size.
inline constexpr std::size_t max_ll128_payload = (std::size_t{1} << 24) - 1;

// In mapped memory the header carries the bytes of a message of up to so many.
inline constexpr std::size_t header_payload_bytes = 32;
// A head: nine lines of bytes behind the header, so that 64 heads are ten pages.
inline constexpr std::size_t head_stride = 640;
inline constexpr std::size_t head_payload_bytes = 576;
inline constexpr int least_heads = 64;
// A receiver tells so many heads at once that it has given back: a sender that waits for them looks
// at the line which the receiver must write. At least least_heads - heads_per_credit stay free.
inline constexpr std::uint64_t heads_per_credit = 8;

// Where slots are not mapped a credit is a message of its own, with a system call at both ends: of
// a short message between nodes it is a good part of the work. So a receiver holds back those of
// short puts until so many can be told at once, or that of a longer message is told. More than half
// of the slots stay free, two at least: a plan that ends with two slots ends with any number from
// two on.
inline constexpr std::size_t most_short_put_bytes = std::size_t{16} << 10;
constexpr std::uint64_t credits_together(std::uint64_t slots) {
  return slots / 2 > 1 ? slots / 2 : 1;
}
// Slots that a sender has in every transport, however many credits are held back.
constexpr std::uint64_t usable_slots(std::uint64_t slots) {
  return slots + 1 - credits_together(slots);
}

// What precedes the bytes of a message that is put, at the end of the room for a SlotHeader.
struct PutHeader {
  std::uint64_t number;  // the message's, from 1
  std::uint64_t bytes;   // of the message, and direct_bit where they lie at their destination
  CallId call;           // that the message belongs to
};

inline constexpr std::uint64_t direct_bit = std::uint64_t{1} << 63;

// What kind of message it is and how long, in one word, so that a sender only stores: to change a
// part of a word that a receiver has read is to wait for it.
class MessageShape {
 public:
  enum class Kind : std::uint8_t { bytes, offer };

  MessageShape() = default;
  MessageShape(Kind kind, std::size_t bytes, std::size_t pieces, bool is_first_slot)
      : word_(std::uint64_t{bytes} | std::uint64_t{pieces} << pieces_shift |
              (is_first_slot ? first_slot_bit : 0) | (kind == Kind::offer ? offer_bit : 0)) {}

  std::size_t bytes() const { return word_ & bytes_mask; }
  // The pieces of an offer.
  std::size_t pieces() const { return word_ >> pieces_shift & pieces_mask; }
  // Whether it begins with the first slot again.
  bool is_first_slot() const { return (word_ & first_slot_bit) != 0; }
  Kind kind() const { return (word_ & offer_bit) != 0 ? Kind::offer : Kind::bytes; }
  // Whether it is no offer, and of so many bytes.
  bool is_plain(std::size_t bytes) const { return (word_ & ~first_slot_bit) == bytes; }

  // 256 TiB; a message is a part of a call's memory.
  static constexpr std::size_t max_bytes = (std::size_t{1} << 48) - 1;

 private:
  static constexpr int pieces_shift = 48;
  static constexpr std::uint64_t bytes_mask = max_bytes;
  static constexpr std::uint64_t pieces_mask = (1 << 14) - 1;
  static constexpr std::uint64_t first_slot_bit = std::uint64_t{1} << 62;
  static constexpr std::uint64_t offer_bit = std::uint64_t{1} << 63;

  std::uint64_t word_ = 0;
};

// The head of a slot of Simple in mapped memory; the bytes, or the PieceRecords of
// an offer, follow it.
struct alignas(64) SlotHeader {
  using Kind = MessageShape::Kind;
  std::uint64_t number;  // the message's, from 1: zeroed memory announces none
  MessageShape shape;
  CallId call;  // that the message belongs to
  std::byte payload[header_payload_bytes];
};
static_assert(sizeof(SlotHeader) == 64);
inline constexpr std::size_t put_header_offset = sizeof(SlotHeader) - sizeof(PutHeader);

// An offered piece, as it lies in the sender's memory.
struct PieceRecord {
  std::uint64_t address;
  std::uint64_t bytes;
};
// Bounds what a receiver keeps for an offer (16 KiB).
inline constexpr std::size_t max_offer_pieces = 1024;

static_assert(sizeof(SlotHeader) + head_payload_bytes == head_stride);

struct FifoLayout {
  std::uint64_t slots;
  std::uint64_t heads;        // of Simple
  std::size_t payload_bytes;  // of a slot
  std::size_t slot_stride;
  // Credits of puts up to this size may be held back: an offer, or what goes directly, which wait
  // for their own, are longer.
  std::size_t short_bytes;
  bool reuses_slots;
  bool shares_memory_bandwidth;
  std::size_t heads_offset;         // of the first head in the region
  std::size_t offset;               // of the first slot in the region
  std::size_t destinations_offset;  // of two lists in turn, in the sender's region; not mapped
  int arrived_signal;               // of the receiver: messages that have arrived
  int credit_signal;                // of the sender: messages that have been given back
  int slot_credit_signal;   // of the sender, in mapped memory: slots that have been given back
  int destinations_signal;  // of the sender: the number of its last list of destinations

  std::size_t slot_offset(std::uint64_t number) const {
    return offset + static_cast<std::size_t>(number % slots) * slot_stride;
  }
  std::size_t list_offset(std::uint64_t number) const {
    return destinations_offset + static_cast<std::size_t>(number % 2) * sizeof(DestinationList);
  }
};

// In mapped memory; the destinations have no place there.
FifoLayout fifo_layout(const FifoOptions& options, Protocol protocol);
// Elsewhere; of all protocols.
FifoLayout put_layout(const FifoOptions& options);

}  // namespace unisono::transport
