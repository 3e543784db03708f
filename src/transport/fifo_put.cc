#include "transport/fifo_put.h"

#include <cstring>

#include "base/try.h"

namespace unisono::transport {

PutSendFifo::PutSendFifo(Connection& connection, const FifoLayout& layout,
                         const FifoOptions& options)
    : connection_(connection),
      layout_(layout),
      options_(options),
      messages_(connection, layout),
      pending_(static_cast<std::size_t>(layout.slots)) {}

Result<bool> PutSendFifo::can_send() {
  UNISONO_TRY(push());
  return messages_.has_free_slot();
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

bool PutSendFifo::offers_zero_copy(std::span<const Piece> pieces) const {
  const std::size_t bytes = total_bytes(pieces);
  return pieces.size() <= max_offered && bytes > 0 && bytes >= options_.zero_copy_min_bytes &&
         bytes <= layout_.payload_bytes;
}

Status PutSendFifo::offer(std::span<const Piece> pieces) {
  if (!offers_zero_copy(pieces))
    return bug("memory was offered in ", pieces.size(),
               " pieces, which this connection cannot carry");
  stage(0);
  return publish(total_bytes(pieces), pieces);
}

Status PutSendFifo::publish(std::size_t bytes, std::span<const Piece> offered) {
  const std::uint64_t number = messages_.sent();
  const PutHeader header{.number = number + 1, .bytes = bytes, .call = call_};
  Pending& message = pending(number);
  std::memcpy(message.staging.data() + put_header_offset, &header, sizeof header);
  message.bytes = bytes;
  message.offered_count = 0;
  for (const Piece& piece : offered)
    if (piece.bytes > 0) message.offered[message.offered_count++] = piece;
  message.parts_put = 0;
  message.bytes_put = 0;
  messages_.add();
  return push();
}

Status PutSendFifo::push() {
  while (pushed_ < messages_.sent()) {
    UNISONO_ASSIGN(const bool taken, push_message());
    if (!taken) break;
    ++pushed_;
  }
  has_pending_ = pushed_ < messages_.sent();
  return {};
}

// The signal goes with the last part: a signal is seen after every put before it.
Result<bool> PutSendFifo::push_message() {
  Pending& message = pending(pushed_);
  const std::byte* head = message.staging.data() + put_header_offset;
  const std::size_t offset = layout_.slot_offset(pushed_);
  for (std::size_t& part = message.parts_put; part <= message.offered_count; ++part) {
    const bool is_head = part == 0;
    const Piece piece =
        !is_head ? message.offered[part - 1]
                 : Piece{head, sizeof(PutHeader) + (message.offered_count > 0 ? 0 : message.bytes)};
    Signal signal;
    if (part == message.offered_count) signal = {layout_.arrived_signal, pushed_ + 1};
    const std::size_t at = is_head ? put_header_offset : sizeof(SlotHeader) + message.bytes_put;
    UNISONO_ASSIGN(const bool taken,
                   connection_.try_put(piece.data, piece.bytes, offset + at, signal));
    if (!taken) return false;
    last_put_ = connection_.puts_started();
    if (!is_head) message.bytes_put += piece.bytes;
  }
  return true;
}

Result<bool> PutSendFifo::flush() {
  UNISONO_TRY(push());
  return pushed_ == messages_.sent() && connection_.puts_completed() >= last_put_;
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

Status PutRecvFifo::accept(std::size_t bytes) const {
  PutHeader header;
  std::memcpy(&header, slot() + put_header_offset, sizeof header);
  const int peer = connection_.peer();
  const std::uint64_t next = messages_.taken() + 1;
  if (header.number != next)
    return peer_error(peer, "rank ", peer, " sent message ", header.number, "; message ", next,
                      " was expected");
  if (header.call != call_) return call_mismatch(connection_, header.call, call_);
  if (header.bytes != bytes) return size_mismatch(peer, messages_.taken(), header.bytes, bytes);
  if (bytes <= layout_.payload_bytes) return {};
  return peer_error(peer, "rank ", peer, " sent ", bytes, " bytes in a slot that holds ",
                    layout_.payload_bytes);
}

Status PutRecvFifo::copy_to(void* destination, std::size_t offset, std::size_t bytes) {
  UNISONO_TRY(check_part(offset, bytes, accepted_ ? accepted_bytes_ : 0));
  if (bytes > 0) std::memcpy(destination, slot() + sizeof(SlotHeader) + offset, bytes);
  return {};
}

Status PutRecvFifo::release() {
  if (!accepted_) return bug("a message was released before it arrived");
  accepted_ = false;
  return messages_.give_back(accepted_bytes_);
}

}  // namespace unisono::transport
