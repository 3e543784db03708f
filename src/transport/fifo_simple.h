// The Simple protocol: bytes in the slot, then a signal that counts messages.
#pragma once

#include <vector>

#include "transport/fifo_credits.h"

namespace unisono::transport {

// Stores into the peer's mapped region.
class SimpleSendFifo final : public SendFifo {
 public:
  SimpleSendFifo(Connection& connection, const FifoLayout& layout, const FifoOptions& options)
      : connection_(connection),
        layout_(layout),
        options_(options),
        messages_(connection, layout) {}

  Result<bool> can_send() override { return messages_.has_free_slot(); }
  Status send(std::span<const Piece> pieces) override;
  void* begin(std::size_t bytes) override;
  Status commit() override;
  bool offers_zero_copy(std::span<const Piece> pieces) const override;
  Status offer(std::span<const Piece> pieces) override;
  std::uint64_t sent() const override { return messages_.sent(); }
  std::uint64_t consumed() override { return messages_.consumed(); }
  Result<bool> flush() override { return true; }

 private:
  std::byte* slot() const {
    return connection_.peer_region() + layout_.slot_offset(messages_.sent());
  }
  void publish(SlotHeader::Kind kind, std::size_t bytes, std::size_t pieces);

  Connection& connection_;
  FifoLayout layout_;
  FifoOptions options_;
  SentMessages messages_;
  std::size_t begun_bytes_ = 0;
};

// Takes messages that a signal announces: Simple ones, and all that are put.
class SignalledRecvFifo final : public RecvFifo {
 public:
  SignalledRecvFifo(Connection& connection, const FifoLayout& layout)
      : connection_(connection), layout_(layout), messages_(connection, layout) {}

  Result<bool> arrived(std::size_t bytes) override;
  const void* data() override;
  Status copy_to(void* destination, std::size_t offset, std::size_t bytes) override;
  Status release() override;
  std::uint64_t received() const override { return messages_.taken(); }
  Result<bool> flush() override { return messages_.flushed(); }

 private:
  const std::byte* slot() const {
    return connection_.region() + layout_.slot_offset(messages_.taken());
  }
  Status accept(std::size_t bytes);
  Status accept_offer(std::size_t bytes, std::size_t pieces);
  Status read_offered(std::byte* destination, std::size_t offset, std::size_t bytes);

  Connection& connection_;
  FifoLayout layout_;
  TakenMessages messages_;
  std::uint64_t known_arrived_ = 0;
  bool accepted_ = false;  // the message at hand was looked at and is right
  std::size_t accepted_bytes_ = 0;
  std::vector<PieceRecord>
      offered_;  // of the message at hand; empty when its bytes are in the slot
};

}  // namespace unisono::transport
