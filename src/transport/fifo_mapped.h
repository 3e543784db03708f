// The Simple protocol in memory that both ends map, in its inline form: what the host engine uses
// for small messages, and SimpleSendFifo and SimpleRecvFifo for all.
//
// A message's header tells its arrival, and carries the bytes of a message of up to
// header_payload_bytes: such a message is one cache line that goes from core to core. The bytes of
// a longer one follow the header.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/short_copy.h"
#include "transport/fifo_credits.h"
#include "transport/fifo_layout.h"
#include "transport/slot_store.h"
#include "transport/transport.h"

namespace unisono::transport {

// The slots of one direction, taken in turn.
//
// A large message that leaves room in its slot lies in another part of it each time round. So what
// is written was read so many bytes ago that the receiver's own cache has given it up to one that
// the sender may share, from which it comes three times as fast as out of the other core's cache.
// Smaller messages stay where they are and touch few pages.
class SlotCursor {
 public:
  SlotCursor(std::byte* region, const FifoLayout& layout)
      : first_(region + layout.offset),
        end_(first_ + layout.slots * layout.slot_stride),
        stride_(layout.slot_stride),
        payload_bytes_(layout.payload_bytes),
        at_(first_) {}

  std::byte* slot() const { return at_; }
  SlotHeader& header() const { return *reinterpret_cast<SlotHeader*>(at_); }
  std::byte* behind_header() const { return at_ + sizeof(SlotHeader); }
  std::byte* payload(std::size_t bytes) const {
    if (bytes <= header_payload_bytes) return header().payload;
    return bytes < least_spread_bytes ? behind_header() : behind_header() + spread(bytes);
  }
  void advance() {
    at_ += stride_;
    if (at_ != end_) return;
    at_ = first_;
    ++round_;
  }

 private:
  static constexpr std::size_t least_spread_bytes = std::size_t{16} << 10;

  std::size_t spread(std::size_t bytes) const {
    const std::size_t lines = (bytes + slot_alignment - 1) / slot_alignment * slot_alignment;
    const std::size_t places = payload_bytes_ / lines;
    return places <= 1 ? 0 : round_ % places * lines;
  }

  std::byte* first_;
  std::byte* end_;
  std::size_t stride_;
  std::size_t payload_bytes_;
  std::byte* at_;
  std::size_t round_ = 0;
};

class MappedSender {
 public:
  // Only when the connection is ready, and mapped.
  MappedSender(Connection& connection, const FifoLayout& layout)
      : messages_(connection, layout), cursor_(connection.peer_region(), layout) {}

  // Whether a slot is known to be free; if not, messages().has_free_slot() looks.
  bool has_free_slot() const { return messages_.knows_free_slot(); }
  SentMessages& messages() { return messages_; }
  const SentMessages& messages() const { return messages_; }
  // Where the next message of `bytes` goes; then publish(), with the same.
  std::byte* payload(std::size_t bytes) const { return cursor_.payload(bytes); }
  // Copies into that memory.
  void fill(std::byte* to, const void* from, std::size_t bytes) {
    const auto* source = static_cast<const std::byte*>(from);
    if (bytes < SlotStore::least_bytes)
      short_copy(to, source, bytes);
    else
      store_.copy(to, source, bytes);
  }
  std::byte* offered_pieces() const { return cursor_.behind_header(); }
  void publish(SlotHeader::Kind kind, std::size_t bytes, std::size_t pieces) {
    SlotHeader& header = cursor_.header();
    header.bytes = bytes;
    header.kind = kind;
    header.pieces = static_cast<std::uint32_t>(pieces);
    messages_.add();
    cursor_.advance();
    // Release: who sees the number sees the message, and what this process wrote to offered memory.
    std::atomic_ref(header.number).store(messages_.sent(), std::memory_order_release);
  }

 private:
  SentMessages messages_;
  SlotCursor cursor_;
  SlotStore store_;
};

class MappedReceiver {
 public:
  // Only when the connection is ready, and mapped.
  MappedReceiver(Connection& connection, const FifoLayout& layout)
      : credit_(connection.peer_signals()[layout.credit_signal]),
        cursor_(connection.region(), layout) {}

  std::uint64_t taken() const { return taken_; }
  // The number of the last message in the next slot. Acquire: pairs with the release of publish().
  std::uint64_t number() const {
    return std::atomic_ref(cursor_.header().number).load(std::memory_order_acquire);
  }
  // Once arrived. Copied before it is looked at: the peer could still write to what is mapped.
  SlotHeader header() const { return cursor_.header(); }
  // Whether the message that arrived is `bytes` in the slot.
  bool carries(std::size_t bytes) const {
    return cursor_.header().bytes == bytes && cursor_.header().kind == SlotHeader::Kind::bytes;
  }
  const std::byte* payload(std::size_t bytes) const { return cursor_.payload(bytes); }
  const std::byte* offered_pieces() const { return cursor_.behind_header(); }
  void release() {
    ++taken_;
    cursor_.advance();
    // Release: our reads of the slot, and of offered memory, happen before the sender's next
    // writes.
    credit_.store(taken_, std::memory_order_release);
    // A sender that is ahead has filled the next slot; it is fetched beside what is done with this
    // message.
    __builtin_prefetch(cursor_.slot());
    __builtin_prefetch(cursor_.behind_header());
  }

 private:
  std::atomic<std::uint64_t>& credit_;  // the peer's: messages taken
  std::uint64_t taken_ = 0;
  SlotCursor cursor_;
};

}  // namespace unisono::transport
