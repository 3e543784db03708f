// The Simple protocol in memory that both ends map, in its inline form: what the host engine uses
// for small messages, and SimpleSendFifo and SimpleRecvFifo for all.
//
// A message's header tells its arrival, and carries the bytes of a message of up to
// header_payload_bytes: such a message is one cache line that goes from core to core. The bytes of
// a longer one follow the header, up to head_payload_bytes; those of a still longer one, and where
// the pieces of an offer lie, are in the next slot.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/short_copy.h"
#include "transport/fifo_credits.h"
#include "transport/fifo_layout.h"
#include "transport/fifo_memory.h"
#include "transport/slot_store.h"
#include "transport/traffic.h"
#include "transport/transport.h"

namespace unisono::transport {

// Where a message lies.
inline bool takes_slot(SlotHeader::Kind kind, std::size_t bytes) {
  return kind == SlotHeader::Kind::offer || bytes > head_payload_bytes;
}

// The heads of one direction, taken in turn.
class HeadCursor {
 public:
  HeadCursor(std::byte* region, const FifoLayout& layout)
      : first_(region + layout.heads_offset),
        end_(first_ + layout.heads * head_stride),
        at_(first_) {}

  std::size_t index() const { return index_; }
  SlotHeader& header() const { return *reinterpret_cast<SlotHeader*>(at_); }
  std::byte* behind_header() const { return at_ + sizeof(SlotHeader); }
  void advance() {
    at_ += head_stride;
    ++index_;
    if (at_ != end_) return;
    at_ = first_;
    index_ = 0;
  }

 private:
  std::byte* first_;
  std::byte* end_;
  std::byte* at_;
  std::size_t index_ = 0;
};

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
        spreads_(!layout.reuses_slots),
        at_(first_) {}

  bool is_first() const { return at_ == first_; }
  void restart() {
    at_ = first_;
    index_ = 0;
  }
  std::size_t index() const { return index_; }
  std::byte* slot() const { return at_; }
  std::byte* payload(std::size_t bytes) const { return at_ + start(bytes); }
  // The bytes of the slot that a message of `bytes` needs.
  std::size_t extent(std::size_t bytes) const { return start(bytes) + bytes; }
  void advance() {
    at_ += stride_;
    ++index_;
    if (at_ != end_) return;
    restart();
    ++round_;
  }

 private:
  static constexpr std::size_t least_spread_bytes = std::size_t{16} << 10;

  std::size_t start(std::size_t bytes) const {
    return bytes < least_spread_bytes || !spreads_ ? 0 : spread(bytes);
  }
  std::size_t spread(std::size_t bytes) const {
    const std::size_t lines = (bytes + slot_alignment - 1) / slot_alignment * slot_alignment;
    const std::size_t places = payload_bytes_ / lines;
    return places <= 1 ? 0 : round_ % places * lines;
  }

  std::byte* first_;
  std::byte* end_;
  std::size_t stride_;
  std::size_t payload_bytes_;
  bool spreads_;
  std::byte* at_;
  std::size_t index_ = 0;
  std::size_t round_ = 0;
};

// Where the next message of `bytes` in a slot or head lies, at both ends.
inline std::byte* payload_at(const HeadCursor& head, const SlotCursor& slot, std::size_t bytes) {
  if (bytes <= header_payload_bytes) return head.header().payload;
  return bytes <= head_payload_bytes ? head.behind_header() : slot.payload(bytes);
}

// What a short message needs lies in three cache lines, and as much of the receiver.
class alignas(64) MappedSender {
 public:
  // `link` is the connection's.
  MappedSender(Connection& connection, const HostLink& link, const FifoLayout& layout,
               FlightMeter& flight)
      : messages_(connection, layout.credit_signal, layout.heads),
        head_(link.region, layout),
        head_memory_(connection, layout),
        slot_(link.region, layout),
        slots_(connection, layout.slot_credit_signal, layout.slots),
        slot_memory_(connection, layout),
        reuses_slots_(layout.reuses_slots),
        store_(layout.shares_memory_bandwidth),
        flight_(flight) {}

  // Whether there is room for a message of `bytes`, and memory behind it, as far as is known; if
  // not, look_for_room() looks, and reserves the memory.
  bool knows_room(std::size_t bytes) const {
    return messages_.knows_free_slot() && head_memory_.has(head_.index()) &&
           (bytes <= head_payload_bytes ||
            (slots_.knows_free_slot() && slot_memory_.has(slot_.index(), slot_.extent(bytes))));
  }
  Result<bool> look_for_room(std::size_t bytes) {
    auto has_head = messages_.has_free_slot();
    if (!has_head.ok() || !*has_head) return has_head;
    UNISONO_TRY(head_memory_.reserve(head_.index()));
    if (bytes <= head_payload_bytes) return true;
    auto has_slot = slots_.has_free_slot();
    if (!has_slot.ok() || !*has_slot) return has_slot;
    UNISONO_TRY(reserve(bytes));
    return true;
  }
  // For a message of any size or kind; then reserve() or reserve_pieces().
  Result<bool> look_for_any_room() {
    auto has_room = look_for_room(0);
    if (!has_room.ok() || !*has_room) return has_room;
    return slots_.has_free_slot();
  }
  Status reserve(std::size_t bytes) {
    if (bytes <= head_payload_bytes) return {};
    return slot_memory_.reserve(slot_.index(), slot_.extent(bytes));
  }
  Status reserve_pieces(std::size_t bytes) { return slot_memory_.reserve(slot_.index(), bytes); }
  const SentMessages& messages() const { return messages_; }
  // Where the next message of `bytes` goes; then publish(), with the same.
  std::byte* payload(std::size_t bytes) {
    if (reuses_slots_ && bytes >= least_reused_bytes && slot_memory_.has(0, bytes) &&
        slots_.has_all_back())
      slot_.restart();
    return payload_at(head_, slot_, bytes);
  }
  // Copies into that memory.
  void fill(std::byte* to, const void* from, std::size_t bytes) {
    const auto* source = static_cast<const std::byte*>(from);
    if (bytes < SlotStore::least_bytes)
      short_copy(to, source, bytes);
    else
      store_.copy(to, source, bytes);
  }
  std::byte* offered_pieces() const { return slot_.slot(); }
  void publish(SlotHeader::Kind kind, std::size_t bytes, std::size_t pieces, const CallId& call) {
    SlotHeader& header = head_.header();
    header.shape = MessageShape(kind, bytes, pieces, slot_.is_first());
    header.call = call;
    messages_.add();
    add_relaxed(bytes_, bytes);
    head_.advance();
    if (takes_slot(kind, bytes)) {
      slots_.add();
      slot_.advance();
    }
    // Release: who sees the number sees the message, and what this process wrote to offered memory.
    std::atomic_ref(header.number).store(messages_.sent(), std::memory_order_release);
    if (bytes >= least_timed_bytes) time(bytes);
  }
  // Which of the messages in flight have landed.
  void look_at_flight() { flight_.land_below(slots_.consumed()); }
  // Any thread.
  void add_to(trace::Traffic& out) const {
    out.posts += messages_.sent();
    out.bytes += bytes_.load(std::memory_order_relaxed);
  }

 private:
  // The message just published, by the slot that it has taken. Apart, so that publish() stays short
  // enough to be inlined.
  void time(std::size_t bytes);

  // A line that the receiver has written says whether all slots are free: some 0.1 us.
  static constexpr std::size_t least_reused_bytes = std::size_t{4} << 10;

  SentMessages messages_;  // by their heads
  std::atomic<std::uint64_t> bytes_{0};
  HeadCursor head_;
  HeadMemory head_memory_;
  SlotCursor slot_;
  SentMessages slots_;
  SlotMemory slot_memory_;
  bool reuses_slots_;
  SlotStore store_;
  FlightMeter& flight_;  // the fifo's
};

class alignas(64) MappedReceiver {
 public:
  // `link` is the connection's.
  MappedReceiver(Connection& connection, const HostLink& link, const FifoLayout& layout)
      : credit_(link.signals[layout.credit_signal]),
        slot_credit_(link.signals[layout.slot_credit_signal]),
        head_(connection.region(), layout),
        slot_(connection.region(), layout) {}

  // Any thread.
  std::uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }
  void add_to(trace::Traffic& out) const {
    out.posts += taken();
    out.bytes += bytes_.load(std::memory_order_relaxed);
  }
  // The number of the last message in the next head. Acquire: pairs with the release of publish().
  std::uint64_t number() const {
    return std::atomic_ref(head_.header().number).load(std::memory_order_acquire);
  }
  // Once arrived. Copied before it is looked at: the peer could still write to what is mapped.
  SlotHeader header() const { return head_.header(); }
  // Whether the message that arrived is `bytes` in the slot, of that call.
  bool carries(std::size_t bytes, const CallId& call) const {
    return head_.header().shape.is_plain(bytes) && head_.header().call == call;
  }
  const std::byte* payload(std::size_t bytes) {
    follow_sender();
    return payload_at(head_, slot_, bytes);
  }
  const std::byte* offered_pieces() {
    follow_sender();
    return slot_.slot();
  }
  // Gives back the message at hand, of this kind and size.
  void release(SlotHeader::Kind kind, std::size_t bytes) {
    follow_sender();
    add_relaxed(taken_, 1);
    add_relaxed(bytes_, bytes);
    head_.advance();
    // Release, both: our reads of the slot, and of offered memory, happen before the sender's next
    // writes.
    if (takes_slot(kind, bytes)) {
      ++slots_taken_;
      slot_.advance();
      slot_credit_.store(slots_taken_, std::memory_order_release);
      credit_.store(taken(), std::memory_order_release);
    } else if (taken() % heads_per_credit == 0) {
      credit_.store(taken(), std::memory_order_release);
    }
    // A sender that is ahead has filled the next head; it is fetched beside what is done with this
    // message.
    __builtin_prefetch(&head_.header());
    __builtin_prefetch(bytes > head_payload_bytes ? slot_.slot() : head_.behind_header());
  }

 private:
  void follow_sender() {
    if (head_.header().shape.is_first_slot()) slot_.restart();
  }

  std::atomic<std::uint64_t>& credit_;       // the peer's: messages taken
  std::atomic<std::uint64_t>& slot_credit_;  // the peer's: slots taken
  std::atomic<std::uint64_t> taken_{0};
  std::uint64_t slots_taken_ = 0;
  std::atomic<std::uint64_t> bytes_{0};
  HeadCursor head_;
  SlotCursor slot_;
};

}  // namespace unisono::transport
