#include "transport/fifo_put.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/try.h"

namespace unisono::transport {

PutSendFifo::PutSendFifo(Connection& connection, const FifoLayout& layout, sys::CallClock* clock)
    : SendFifo(clock, Timing::every_call, layout.slots),
      connection_(connection),
      layout_(layout),
      messages_(connection, layout),
      pending_(static_cast<std::size_t>(layout.slots)) {}

// A buffer that is large enough, if one is free, or another one made larger.
std::byte* PutSendFifo::stage(std::size_t bytes) {
  note_read();
  const std::size_t room = sizeof(SlotHeader) + bytes;
  Free& free = is_short(bytes) ? free_short_ : free_long_;
  Pending& message = pending(messages_.sent());
  unstage(message);  // of a message that was begun and not committed
  AlignedBytes& staging = message.staging;
  const auto fits = std::find_if(free.rbegin(), free.rend(),
                                 [&](const AlignedBytes& each) { return each.bytes() >= room; });
  if (fits != free.rend()) std::swap(*fits, free.back());
  if (!free.empty()) {
    staging = std::move(free.back());
    free.pop_back();
  }
  const std::size_t before = staging.bytes();
  staging.reserve(room);
  count_staged(before, staging.bytes());
  return staging.data();
}

void PutSendFifo::unstage(Pending& message) {
  if (message.staging.bytes() == 0) return;
  Free& free = is_short(message.staging.bytes() - sizeof(SlotHeader)) ? free_short_ : free_long_;
  free.push_back(std::move(message.staging));
}

// A message has been read when the connection has completed its puts.
void PutSendFifo::note_read() {
  if (read_ == pushed_) return;
  const std::uint64_t completed = connection_.puts_completed();
  while (read_ < pushed_ && pending(read_).last_put <= completed) unstage(pending(read_++));
}

// One that went directly counts when the receiver has taken it: a sender that went on before would
// begin its next call before the receiver has told where messages belong, and would fill slots.
std::uint64_t PutSendFifo::sources_read() {
  note_read();
  std::uint64_t number = std::min(messages_.consumed(), read_);
  while (number < read_ && pending(number).memory.key == 0) ++number;
  return number;
}

void PutSendFifo::free_unneeded() {
  while (free_long_.size() > most_kept) {
    count_staged(free_long_.back().bytes(), 0);
    free_long_.pop_back();
  }
}

Result<bool> PutSendFifo::can_send() {
  UNISONO_TRY(push());
  UNISONO_ASSIGN(const bool has_slot, messages_.has_free_slot());
  if (messages_.sent() - read_ == layout_.slots) note_read();
  return has_slot && messages_.sent() - read_ < layout_.slots;
}

Status PutSendFifo::send(std::span<const Piece> pieces) {
  const std::size_t bytes = total_bytes(pieces);
  UNISONO_TRY(check_message(bytes, layout_.payload_bytes));
  std::byte* to = stage(bytes) + sizeof(SlotHeader);
  for (const Piece& piece : pieces) {
    if (piece.bytes > 0) std::memcpy(to, piece.data, piece.bytes);
    to += piece.bytes;
  }
  return publish(bytes, {});
}

Result<void*> PutSendFifo::begin(std::size_t bytes) {
  UNISONO_TRY(check_message(bytes, layout_.payload_bytes));
  begun_bytes_ = bytes;
  return stage(bytes) + sizeof(SlotHeader);
}

Status PutSendFifo::commit() { return publish(begun_bytes_, {}); }

Status PutSendFifo::offer(std::span<const Piece> pieces) {
  if (!offers_zero_copy(pieces))
    return bug("memory was offered in ", pieces.size(),
               " pieces, which this connection cannot carry");
  note_read();
  return publish(total_bytes(pieces), pieces);
}

// The peer's list is copied before anything of it is looked at. Its owner checks what is put to its
// memory, so it can only disturb itself.
const DestinationList* PutSendFifo::destinations() {
  // Acquire: the put's bytes come before its signal.
  const std::uint64_t told =
      connection_.signals()[layout_.destinations_signal].load(std::memory_order_acquire);
  if (told == 0) return nullptr;
  if (told != destinations_known_) {
    destinations_known_ = told;
    std::memcpy(&destinations_, connection_.region() + layout_.list_offset(told),
                sizeof destinations_);
    if (destinations_.number != told) destinations_.memory = {};
    destinations_.count =
        std::min(destinations_.count, std::uint32_t{DestinationList::most_messages});
  }
  return connection_.puts_in_place() && destinations_.memory.key != 0 ? &destinations_ : nullptr;
}

Status PutSendFifo::send_directly(std::span<const Piece> pieces,
                                  std::span<const std::size_t> offsets) {
  if (!sends_directly(total_bytes(pieces), pieces.size()) || offsets.size() != pieces.size())
    return bug("a message was sent directly in ", pieces.size(),
               " pieces, which this connection cannot carry");
  note_read();
  Pending& message = pending(messages_.sent());
  message.memory = destinations_.memory;
  std::ranges::copy(offsets, message.offsets.begin());
  return publish(total_bytes(pieces), pieces, direct_bit);
}

Status PutSendFifo::publish(std::size_t bytes, std::span<const Piece> offered,
                            std::uint64_t flags) {
  const std::uint64_t number = messages_.sent();
  Pending& message = pending(number);
  message.header = {.number = number + 1, .bytes = bytes | flags, .call = call_};
  if (offered.empty())
    std::memcpy(message.staging.data() + put_header_offset, &message.header, sizeof(PutHeader));
  message.bytes = bytes;
  if (flags == 0) message.memory = {};
  message.offered_count = 0;
  for (const Piece& piece : offered)
    if (piece.bytes > 0 || flags != 0) message.offered[message.offered_count++] = piece;
  message.parts_put = 0;
  message.bytes_put = 0;
  messages_.add();
  counter_.count(bytes);
  if (flight_.begins_timed()) {
    settle();
    flight_.post(number, bytes);
  }
  return push();
}

Status PutSendFifo::push() {
  while (pushed_ < messages_.sent()) {
    Pending& first = pending(pushed_);
    UNISONO_ASSIGN(const bool taken,
                   first.memory.key != 0 ? push_direct(first) : push_message(first));
    if (!taken) break;
    ++pushed_;
  }
  has_pending_ = pushed_ < messages_.sent();
  return {};
}

// The signal goes with the last part: a signal is seen after every put before it.
Result<bool> PutSendFifo::push_message(Pending& message) {
  const Piece head = message.offered_count > 0 ? Piece{&message.header, sizeof(PutHeader)}
                                               : Piece{message.staging.data() + put_header_offset,
                                                       sizeof(PutHeader) + message.bytes};
  const std::size_t offset = layout_.slot_offset(pushed_);
  for (std::size_t& part = message.parts_put; part <= message.offered_count; ++part) {
    const bool is_head = part == 0;
    const Piece piece = is_head ? head : message.offered[part - 1];
    Signal signal;
    if (part == message.offered_count) signal = {layout_.arrived_signal, pushed_ + 1};
    const std::size_t at = is_head ? put_header_offset : sizeof(SlotHeader) + message.bytes_put;
    UNISONO_ASSIGN(const bool taken,
                   connection_.try_put(piece.data, piece.bytes, offset + at, signal));
    if (!taken) return false;
    message.last_put = connection_.puts_started();
    if (!is_head) message.bytes_put += piece.bytes;
  }
  return true;
}

Result<bool> PutSendFifo::push_direct(Pending& message) {
  for (std::size_t& part = message.parts_put; part < message.offered_count; ++part) {
    const Piece& piece = message.offered[part];
    UNISONO_ASSIGN(const bool taken, connection_.try_put_to(message.memory, message.offsets[part],
                                                            piece.data, piece.bytes, {}));
    if (!taken) return false;
  }
  UNISONO_ASSIGN(const bool taken,
                 connection_.try_put(&message.header, sizeof(PutHeader),
                                     layout_.slot_offset(pushed_) + put_header_offset,
                                     {layout_.arrived_signal, pushed_ + 1}));
  if (taken) message.last_put = connection_.puts_started();
  return taken;
}

// The credit of a short message may be held back, so that it has landed as far as is known when the
// transport has read it.
void PutSendFifo::look_at_flight() {
  note_read();
  std::uint64_t landed = messages_.consumed();
  while (landed < read_ && is_short(pending(landed).bytes)) ++landed;
  flight_.land_below(landed);
}

Result<bool> PutSendFifo::flush() {
  UNISONO_TRY(push());
  note_read();
  if (read_ < messages_.sent()) return false;
  free_unneeded();
  return true;
}

std::size_t PutSendFifo::memory_bytes() const {
  return sizeof *this + pending_.size() * sizeof(Pending) +
         staged_bytes_.load(std::memory_order_relaxed);
}

Result<bool> PutRecvFifo::arrived(std::size_t bytes) {
  if (accepted_ && accepted_bytes_ == bytes) return true;
  if (known_arrived_ == messages_.taken()) {
    // Acquire: the put's bytes come before its signal.
    known_arrived_ = connection_.signals()[layout_.arrived_signal].load(std::memory_order_acquire);
    if (known_arrived_ == messages_.taken()) return false;
    if (known_arrived_ - messages_.taken() > layout_.slots) [[unlikely]]
      return peer_error(connection_.peer(), "rank ", connection_.peer(), " reports ",
                        known_arrived_, " messages sent, but only ", messages_.taken(),
                        " were consumed and there are ", layout_.slots, " slots");
  }
  UNISONO_TRY(accept(bytes));
  accepted_ = true;
  accepted_bytes_ = bytes;
  return true;
}

Status PutRecvFifo::accept(std::size_t bytes) {
  PutHeader header;
  std::memcpy(&header, slot() + put_header_offset, sizeof header);
  const int peer = connection_.peer();
  const std::uint64_t next = messages_.taken() + 1;
  if (header.number != next)
    return peer_error(peer, "rank ", peer, " sent message ", header.number, "; message ", next,
                      " was expected");
  if (header.call != call_) return call_mismatch(connection_, header.call, call_);
  is_direct_ = (header.bytes & direct_bit) != 0;
  header.bytes &= ~direct_bit;
  if (header.bytes != bytes)
    return size_mismatch(connection_, messages_.taken(), header.bytes, bytes);
  if (is_direct_ && exposed_.key == 0)
    return peer_error(peer, "rank ", peer, " sent message ", next,
                      " directly to memory, and none is exposed to it");
  if (bytes <= layout_.payload_bytes) return {};
  return peer_error(peer, "rank ", peer, " sent ", bytes, " bytes in a slot that holds ",
                    layout_.payload_bytes);
}

Status PutRecvFifo::expose(void* memory, std::size_t bytes, std::span<const std::int32_t> chunks) {
  const bool is_underway = connection_.puts_completed() < destinations_put_;
  if (is_underway || chunks.size() > DestinationList::most_messages) return {};
  UNISONO_ASSIGN(exposed_, connection_.expose(memory, bytes));
  destinations_.number = lists_put_ + 1;
  destinations_.first = messages_.taken();
  destinations_.memory = exposed_;
  destinations_.count = static_cast<std::uint32_t>(chunks.size());
  std::ranges::copy(chunks, destinations_.chunks.begin());
  UNISONO_ASSIGN(const bool taken,
                 connection_.try_put(&destinations_, destinations_.used_bytes(),
                                     layout_.list_offset(destinations_.number),
                                     {layout_.destinations_signal, destinations_.number}));
  if (!taken) {
    withdraw();
    return {};
  }
  ++lists_put_;
  destinations_put_ = connection_.puts_started();
  return {};
}

void PutRecvFifo::withdraw() {
  if (exposed_.key != 0) connection_.withdraw(std::exchange(exposed_, {}));
}

Status PutRecvFifo::copy_to(void* destination, std::size_t offset, std::size_t bytes) {
  if (is_direct())
    return peer_error(connection_.peer(), "rank ", connection_.peer(), " sent message ",
                      messages_.taken() + 1,
                      " directly to memory, but this rank takes it from its slot");
  UNISONO_TRY(check_part(offset, bytes, accepted_ ? accepted_bytes_ : 0));
  if (bytes > 0) std::memcpy(destination, slot() + sizeof(SlotHeader) + offset, bytes);
  return {};
}

Status PutRecvFifo::release() {
  if (!accepted_) return bug("a message was released before it arrived");
  accepted_ = false;
  counter_.count(accepted_bytes_);
  return messages_.give_back(accepted_bytes_);
}

}  // namespace unisono::transport
