#include "transport/fifo_flagged.h"

#include <cstring>

#include "base/try.h"

namespace unisono::transport {

template <class Codec>
Status FlaggedSendFifo<Codec>::send(std::span<const Piece> pieces) {
  const std::size_t bytes = total_bytes(pieces);
  UNISONO_TRY(check_message(bytes, layout_.payload_bytes));
  if (pieces.size() == 1) return encode(static_cast<const std::byte*>(pieces[0].data), bytes);
  std::byte* to = staging_.data();
  for (const Piece& piece : pieces) {
    if (piece.bytes > 0) std::memcpy(to, piece.data, piece.bytes);
    to += piece.bytes;
  }
  return encode(staging_.data(), bytes);
}

template <class Codec>
Result<void*> FlaggedSendFifo<Codec>::begin(std::size_t bytes) {
  UNISONO_TRY(check_message(bytes, layout_.payload_bytes));
  begun_bytes_ = bytes;
  return staging_.data();
}

template <class Codec>
Status FlaggedSendFifo<Codec>::commit() {
  return encode(staging_.data(), begun_bytes_);
}

template <class Codec>
Status FlaggedSendFifo<Codec>::encode(const std::byte* source, std::size_t bytes) {
  const std::uint64_t number = messages_.sent();
  const bool fills =
      number % Codec::fill_interval < layout_.slots && number >= Codec::fill_interval;
  const std::size_t extent = Codec::encoded_bytes(fills ? layout_.payload_bytes : bytes);
  UNISONO_TRY(memory_.reserve(static_cast<std::size_t>(number % layout_.slots), extent));
  const auto next = static_cast<std::size_t>((number + 1) % layout_.slots);
  UNISONO_TRY(memory_.reserve(next, Codec::first_bytes));
  std::byte* slot = region_ + layout_.slot_offset(number);
  Codec::encode(slot, source, bytes, number, call_);
  if (fills) [[unlikely]]
    Codec::fill(slot, bytes, layout_.payload_bytes, number);
  messages_.add();
  counter_.count(bytes);
  if (bytes >= least_timed_bytes && flight_.begins_timed()) {
    settle();
    flight_.post(number, bytes);
  }
  return {};
}

template <class Codec>
Result<bool> FlaggedRecvFifo<Codec>::arrived(std::size_t bytes) {
  if (complete_ && bytes == bytes_) return true;
  if (bytes != bytes_) {
    UNISONO_TRY(check_message(bytes, layout_.payload_bytes));
    bytes_ = bytes;
    decoding_ = {};
  }
  const std::uint64_t number = messages_.taken();
  const std::byte* slot = connection_.region() + layout_.slot_offset(number);
  const DecodeResult result = Codec::decode(slot, staging_.data(), bytes, number, call_, decoding_);
  if (result.state == DecodeResult::State::other_call) [[unlikely]]
    return call_mismatch(connection_, result.call, call_);
  if (result.state == DecodeResult::State::other_size) [[unlikely]]
    return size_mismatch(connection_, number, result.sent, bytes);
  complete_ = result.state == DecodeResult::State::complete;
  return complete_;
}

template <class Codec>
Status FlaggedRecvFifo<Codec>::copy_to(void* destination, std::size_t offset, std::size_t bytes) {
  UNISONO_TRY(check_part(offset, bytes, complete_ ? bytes_ : 0));
  if (bytes > 0) std::memcpy(destination, staging_.data() + offset, bytes);
  return {};
}

template <class Codec>
Status FlaggedRecvFifo<Codec>::release() {
  if (!complete_) return bug("a message was released before it arrived");
  complete_ = false;
  decoding_ = {};
  counter_.count(bytes_);
  Status status = messages_.give_back(bytes_);
  // A sender that is ahead has filled it; the fetch overlaps with the work on this message.
  __builtin_prefetch(connection_.region() + layout_.slot_offset(messages_.taken()));
  return status;
}

template class FlaggedSendFifo<LlCodec>;
template class FlaggedSendFifo<Ll128Codec>;
template class FlaggedRecvFifo<LlCodec>;
template class FlaggedRecvFifo<Ll128Codec>;

}  // namespace unisono::transport
