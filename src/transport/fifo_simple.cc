#include "transport/fifo_simple.h"

#include <cstring>

#include "base/block_copy.h"
#include "base/try.h"

namespace unisono::transport {

void MappedSender::time(std::size_t bytes) {
  if (!flight_.begins_timed()) return;
  if (flight_.is_in_flight()) look_at_flight();
  flight_.post(slots_.sent() - 1, bytes);
}

Status SimpleSendFifo::send(std::span<const Piece> pieces) {
  const std::size_t bytes = total_bytes(pieces);
  UNISONO_TRY(check_message(bytes, payload_bytes_));
  UNISONO_TRY(sender_.reserve(bytes));
  std::byte* to = sender_.payload(bytes);
  for (const Piece& piece : pieces) {
    sender_.fill(to, piece.data, piece.bytes);
    to += piece.bytes;
  }
  sender_.publish(SlotHeader::Kind::bytes, bytes, 0, call_);
  return {};
}

Result<void*> SimpleSendFifo::begin(std::size_t bytes) {
  UNISONO_TRY(check_message(bytes, payload_bytes_));
  UNISONO_TRY(sender_.reserve(bytes));
  begun_bytes_ = bytes;
  return sender_.payload(bytes);
}

Status SimpleSendFifo::commit() {
  sender_.publish(SlotHeader::Kind::bytes, begun_bytes_, 0, call_);
  return {};
}

bool SimpleSendFifo::offers_zero_copy(std::span<const Piece> pieces) const {
  return options_.zero_copy && connection_.can_read_peer() && pieces.size() <= max_offer_pieces &&
         pieces.size() * sizeof(PieceRecord) <= payload_bytes_ &&
         total_bytes(pieces) >= std::max<std::size_t>(options_.zero_copy_min_bytes, 1) &&
         total_bytes(pieces) <= MessageShape::max_bytes;
}

Status SimpleSendFifo::offer(std::span<const Piece> pieces) {
  if (!offers_zero_copy(pieces))
    return bug("memory was offered in ", pieces.size(),
               " pieces, which this connection cannot carry");
  UNISONO_TRY(sender_.reserve_pieces(pieces.size() * sizeof(PieceRecord)));
  std::byte* to = sender_.offered_pieces();
  for (const Piece& piece : pieces) {
    const PieceRecord record{.address = reinterpret_cast<std::uint64_t>(piece.data),
                             .bytes = piece.bytes};
    std::memcpy(to, &record, sizeof record);
    to += sizeof record;
  }
  sender_.publish(SlotHeader::Kind::offer, total_bytes(pieces), pieces.size(), call_);
  return {};
}

Result<bool> SimpleRecvFifo::arrived(std::size_t bytes) {
  if (accepted_ && accepted_bytes_ == bytes) return true;
  UNISONO_ASSIGN(const bool is_there, has_next());
  if (!is_there) return false;
  UNISONO_TRY(accept(bytes));
  accepted_ = true;
  accepted_bytes_ = bytes;
  return true;
}

// A head holds the next message, or the one that it held the last time.
Result<bool> SimpleRecvFifo::has_next() const {
  const std::uint64_t next = receiver_.taken() + 1;
  const std::uint64_t last = next > layout_.heads ? next - layout_.heads : 0;
  const std::uint64_t number = receiver_.number();
  if (number == next || number == last) [[likely]]
    return number == next;
  const int peer = connection_.peer();
  return peer_error(peer, "rank ", peer, " sent message ", number, "; message ", next,
                    " was expected");
}

Status SimpleRecvFifo::accept(std::size_t bytes) {
  const SlotHeader header = receiver_.header();
  const int peer = connection_.peer();
  if (header.call != call_) return call_mismatch(connection_, header.call, call_);
  const MessageShape& shape = header.shape;
  if (shape.bytes() != bytes)
    return size_mismatch(connection_, receiver_.taken(), shape.bytes(), bytes);
  offered_.clear();
  if (shape.kind() == SlotHeader::Kind::offer) return accept_offer(bytes, shape.pieces());
  if (bytes <= layout_.payload_bytes) return {};
  return peer_error(peer, "rank ", peer, " sent ", bytes, " bytes in a slot that holds ",
                    layout_.payload_bytes);
}

Status SimpleRecvFifo::accept_offer(std::size_t bytes, std::size_t pieces) {
  const int peer = connection_.peer();
  if (pieces > max_offer_pieces || pieces * sizeof(PieceRecord) > layout_.payload_bytes ||
      !connection_.can_read_peer())
    return peer_error(peer, "rank ", peer, " offers ", pieces,
                      " pieces of memory; it may offer at most ",
                      connection_.can_read_peer() ? max_offer_pieces : 0);
  offered_.resize(pieces);
  std::memcpy(offered_.data(), receiver_.offered_pieces(), pieces * sizeof(PieceRecord));
  std::uint64_t left = bytes;
  for (const PieceRecord& piece : offered_) {
    if (piece.bytes > left)
      return peer_error(peer, "rank ", peer, " offers pieces that exceed the message's ", bytes,
                        " bytes");
    left -= piece.bytes;
  }
  if (left == 0) return {};
  return peer_error(peer, "rank ", peer, " offers pieces ", left, " bytes short of the message's ",
                    bytes);
}

const void* SimpleRecvFifo::data() {
  return offered_.empty() ? receiver_.payload(accepted_bytes_) : nullptr;
}

Status SimpleRecvFifo::copy_to(void* destination, std::size_t offset, std::size_t bytes) {
  UNISONO_TRY(check_part(offset, bytes, accepted_ ? accepted_bytes_ : 0));
  auto* to = static_cast<std::byte*>(destination);
  if (!offered_.empty()) return read_offered(to, offset, bytes);
  if (bytes > 0) block_copy(to, receiver_.payload(accepted_bytes_) + offset, bytes);
  return {};
}

Status SimpleRecvFifo::read_offered(std::byte* destination, std::size_t offset, std::size_t bytes) {
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

Status SimpleRecvFifo::release() {
  if (!accepted_) return bug("a message was released before it arrived");
  accepted_ = false;
  receiver_.release(offered_.empty() ? SlotHeader::Kind::bytes : SlotHeader::Kind::offer,
                    accepted_bytes_);
  return {};
}

}  // namespace unisono::transport
