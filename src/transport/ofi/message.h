// What the two ends of a connection tell each other, apart from the data.
//
// An end that was asked to connect sends an Ask with a nonce. Who knows of that connection answers
// with a nonce of its own and proof of the job's key; who has seen the other's proof joins: it
// tells where its memory is, and proves that it has the key, too. A proof is an HMAC-SHA256 of the
// whole message, which names both ranks and both nonces, by a key of this connection alone; so
// nothing that was recorded proves anything again, and nothing is told to one that has not proved
// the key.
//
// Once joined, messages carry a ticket, 64 random bits that the receiver told its peer when it
// joined. They and the data are neither encrypted nor authenticated beyond that.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/key.h"
#include "sys/process.h"
#include "transport/transport.h"

namespace unisono::transport::ofi {

using Nonce = std::array<std::byte, 16>;

enum class MessageType : std::uint8_t {
  ask = 1,
  answer,
  join,
  value,
  offer,  // of a put into exposed memory
  allow,  // of that put
  get,    // asks for bytes of exposed memory
  got,    // which writes bring them
  stop,   // the receiver writes no more of what it has not begun to write
  stopped,
  fault,
  bye,
  gone,
  ping,
  arrived  // so many of the receiver's writes and values; every note says it
};

// Of ask, answer and join; the nonce of the receiver is zero in an ask.
struct Meeting {
  ConnectionKey key;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  Nonce from_nonce{};
  Nonce to_nonce{};
};

// What a peer needs to write here, and to know when this end has gone.
struct Facts {
  Geometry geometry;
  std::uint32_t number = 0;  // of the connection, in immediates and messages
  std::uint64_t ticket = 0;
  std::uint64_t memory_key = 0;
  std::uint64_t memory_address = 0;
  std::uint64_t host = 0;
  sys::ProcessIdentity process;
  bool reads_data =
      false;  // completion data tell it of writes; else the ring behind its memory does
};

// Of all others.
struct Note {
  std::uint32_t number = 0;
  std::uint64_t ticket = 0;
  // How many of the receiver's writes and values have arrived here, in order.
  std::uint64_t arrived = 0;
  // Of a value; of a stopped, fault, bye and gone, how many writes and values there were; of an
  // offer and its answer, and of a got, how many writes in place there are up to this one's last;
  // of a get, its number.
  std::uint64_t sequence = 0;
  std::uint32_t index = 0;
  std::uint64_t value = 0;   // of a signal, a packed fault, a key; of a got, the get's number
  std::uint64_t offset = 0;  // of an offer or get; of an allow, the address to write to
  std::uint64_t bytes = 0;   // of an offer or get; of a got, how many it brings
  std::uint64_t to_key = 0;  // of a get, where its bytes are to be written
  std::uint64_t to_address = 0;
};

struct Message {
  MessageType type = MessageType::ask;
  Meeting meeting;
  Facts facts;
  Note note;
};

inline constexpr std::size_t most_message_bytes = 256;

// A put of many bytes is several writes of at most so many, and so is the answer to a get: one that
// is given up ends soon, and copies at both ends overlap.
inline constexpr std::size_t piece_bytes = std::size_t{1} << 20;

constexpr std::uint64_t pieces_of(std::uint64_t bytes, std::uint64_t most_bytes) {
  return bytes / most_bytes + (bytes % most_bytes > 0 ? 1 : 0);
}

// With the connection's key for answer and join.
std::vector<std::byte> encode(const Message& message, const Key& key);
// Nothing where the bytes are not a message of this version. Proofs are not verified yet.
std::optional<Message> decode(std::span<const std::byte> bytes);
// Of an answer or a join.
bool is_proved(std::span<const std::byte> bytes, const Key& key);

// The 32 bits that arrive with a write: which connection, which of its writes, whether it went in
// place (into exposed memory, or to a get's destination), and by how much which signal grows. What
// does not fit follows as a message.
struct Immediate {
  static constexpr std::uint32_t most_number = (1U << 12) - 1;
  static constexpr std::uint32_t most_index = (1U << 6) - 1;
  static constexpr std::uint32_t most_increment = (1U << 5) - 1;

  std::uint32_t number = 0;
  std::uint8_t sequence = 0;  // modulo 256
  std::uint32_t index = 0;
  bool is_in_place = false;
  std::uint32_t increment = 0;  // 0: no signal

  std::uint32_t pack() const {
    return number << 20 | std::uint32_t{sequence} << 12 | index << 6 |
           std::uint32_t{is_in_place} << 5 | increment;
  }
  static Immediate unpack(std::uint32_t word) {
    return {.number = word >> 20,
            .sequence = static_cast<std::uint8_t>(word >> 12),
            .index = word >> 6 & most_index,
            .is_in_place = (word >> 5 & 1) != 0,
            .increment = word & most_increment};
  }
};

}  // namespace unisono::transport::ofi
