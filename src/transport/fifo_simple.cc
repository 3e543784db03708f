#include "transport/fifo_simple.h"

#include <cstring>

#include "base/try.h"

namespace unisono::transport {

Status SimpleSendFifo::send(std::span<const Piece> pieces) {
  const std::size_t bytes = total_bytes(pieces);
  UNISONO_TRY(check_message(bytes, layout_.payload_bytes));
  std::byte* to = slot() + sizeof(SlotHeader);
  for (const Piece& piece : pieces) {
    if (piece.bytes > 0) std::memcpy(to, piece.data, piece.bytes);
    to += piece.bytes;
  }
  publish(SlotHeader::Kind::bytes, bytes, 0);
  return {};
}

void* SimpleSendFifo::begin(std::size_t bytes) {
  begun_bytes_ = bytes;
  return slot() + sizeof(SlotHeader);
}

Status SimpleSendFifo::commit() {
  UNISONO_TRY(check_message(begun_bytes_, layout_.payload_bytes));
  publish(SlotHeader::Kind::bytes, begun_bytes_, 0);
  return {};
}

bool SimpleSendFifo::offers_zero_copy(std::span<const Piece> pieces) const {
  return options_.zero_copy && connection_.can_read_peer() && pieces.size() <= max_offer_pieces &&
         pieces.size() * sizeof(PieceRecord) <= layout_.payload_bytes &&
         total_bytes(pieces) >= std::max<std::size_t>(options_.zero_copy_min_bytes, 1);
}

Status SimpleSendFifo::offer(std::span<const Piece> pieces) {
  if (!offers_zero_copy(pieces))
    return bug("an offer of ", pieces.size(), " pieces is not possible");
  std::byte* to = slot() + sizeof(SlotHeader);
  for (const Piece& piece : pieces) {
    const PieceRecord record{.address = reinterpret_cast<std::uint64_t>(piece.data),
                             .bytes = piece.bytes};
    std::memcpy(to, &record, sizeof record);
    to += sizeof record;
  }
  publish(SlotHeader::Kind::offer, total_bytes(pieces), pieces.size());
  return {};
}

void SimpleSendFifo::publish(SlotHeader::Kind kind, std::size_t bytes, std::size_t pieces) {
  const SlotHeader header{.number = messages_.sent(),
                          .bytes = bytes,
                          .kind = kind,
                          .pieces = static_cast<std::uint32_t>(pieces)};
  std::memcpy(slot(), &header, sizeof header);
  messages_.add();
  // Release: who sees the count sees the slot, and what this process wrote to offered memory.
  connection_.peer_signals()[layout_.arrived_signal].store(messages_.sent(),
                                                           std::memory_order_release);
}

Result<bool> SignalledRecvFifo::arrived(std::size_t bytes) {
  if (accepted_ && accepted_bytes_ == bytes) return true;
  if (known_arrived_ == messages_.taken()) {
    // Acquire: pairs with the release of the sender's signal.
    known_arrived_ = connection_.signals()[layout_.arrived_signal].load(std::memory_order_acquire);
    if (known_arrived_ == messages_.taken()) return false;
    if (known_arrived_ - messages_.taken() > layout_.slots) [[unlikely]]
      return peer_error(connection_.peer(), "rank ", connection_.peer(), " claims to have sent ",
                        known_arrived_, " messages when ", messages_.taken(),
                        " have been taken and there are ", layout_.slots, " slots");
  }
  UNISONO_TRY(accept(bytes));
  accepted_ = true;
  accepted_bytes_ = bytes;
  return true;
}

Status SignalledRecvFifo::accept(std::size_t bytes) {
  // Copied before it is checked: the peer could still write to what is mapped.
  SlotHeader header;
  std::memcpy(&header, slot(), sizeof header);
  const int peer = connection_.peer();
  if (header.number != messages_.taken())
    return peer_error(peer, "rank ", peer, " sent message ", header.number, " where ",
                      messages_.taken(), " is next");
  if (header.bytes != bytes) return size_mismatch(peer, header.number, header.bytes, bytes);
  offered_.clear();
  if (header.kind == SlotHeader::Kind::offer) return accept_offer(bytes, header.pieces);
  if (header.kind != SlotHeader::Kind::bytes || bytes > layout_.payload_bytes)
    return peer_error(peer, "rank ", peer, " sent ", bytes, " bytes as kind ",
                      static_cast<std::uint32_t>(header.kind), " in a slot of ",
                      layout_.payload_bytes);
  return {};
}

Status SignalledRecvFifo::accept_offer(std::size_t bytes, std::size_t pieces) {
  const int peer = connection_.peer();
  if (pieces > max_offer_pieces || pieces * sizeof(PieceRecord) > layout_.payload_bytes ||
      !connection_.can_read_peer())
    return peer_error(peer, "rank ", peer, " offers ", pieces, " pieces of memory; at most ",
                      connection_.can_read_peer() ? max_offer_pieces : 0, " are possible");
  offered_.resize(pieces);
  std::memcpy(offered_.data(), slot() + sizeof(SlotHeader), pieces * sizeof(PieceRecord));
  std::uint64_t left = bytes;
  for (const PieceRecord& piece : offered_) {
    if (piece.bytes > left)
      return peer_error(peer, "rank ", peer, " offers pieces of more than the message's ", bytes,
                        " bytes");
    left -= piece.bytes;
  }
  if (left == 0) return {};
  return peer_error(peer, "rank ", peer, " offers pieces ", left, " bytes short of the message's ",
                    bytes);
}

const void* SignalledRecvFifo::data() {
  return offered_.empty() ? slot() + sizeof(SlotHeader) : nullptr;
}

Status SignalledRecvFifo::copy_to(void* destination, std::size_t offset, std::size_t bytes) {
  if (!accepted_ || bytes > accepted_bytes_ || offset > accepted_bytes_ - bytes)
    return bug("bytes ", offset, " to ", offset + bytes, " of a message of ",
               accepted_ ? accepted_bytes_ : 0);
  auto* to = static_cast<std::byte*>(destination);
  if (!offered_.empty()) return read_offered(to, offset, bytes);
  if (bytes > 0) std::memcpy(to, slot() + sizeof(SlotHeader) + offset, bytes);
  return {};
}

Status SignalledRecvFifo::read_offered(std::byte* destination, std::size_t offset,
                                       std::size_t bytes) {
  for (const PieceRecord& piece : offered_) {
    if (bytes == 0) break;
    if (offset >= piece.bytes) {
      offset -= piece.bytes;
      continue;
    }
    const std::size_t part = std::min<std::size_t>(bytes, piece.bytes - offset);
    UNISONO_TRY(connection_.read_peer(destination, piece.address + offset, part));
    destination += part;
    bytes -= part;
    offset = 0;
  }
  return {};
}

Status SignalledRecvFifo::release() {
  if (!accepted_) return bug("release of a message that has not arrived");
  accepted_ = false;
  return messages_.give_back();
}

}  // namespace unisono::transport
