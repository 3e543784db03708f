// The Simple protocol over a mapped region: bytes, or where they lie, in the slot.
#pragma once

#include <vector>

#include "transport/fifo_mapped.h"

namespace unisono::transport {

class SimpleSendFifo final : public SendFifo {
 public:
  SimpleSendFifo(Connection& connection, const HostLink& link, const FifoLayout& layout,
                 const FifoOptions& options, sys::CallClock* clock)
      : SendFifo(clock, Timing::some_calls, layout.slots),
        connection_(connection),
        payload_bytes_(layout.payload_bytes),
        options_(options),
        sender_(connection, link, layout, flight_) {}

  Result<bool> can_send() override { return sender_.look_for_any_room(); }
  Status send(std::span<const Piece> pieces) override;
  Result<void*> begin(std::size_t bytes) override;
  Status commit() override;
  bool offers_zero_copy(std::span<const Piece> pieces) const override;
  Status offer(std::span<const Piece> pieces) override;
  std::uint64_t sent() const override { return sender_.messages().sent(); }
  std::uint64_t consumed() override { return sender_.messages().consumed(); }
  Result<bool> flush() override { return true; }
  MappedSender* mapped() override { return &sender_; }
  trace::Traffic traffic() const override {
    trace::Traffic out = SendFifo::traffic();
    sender_.add_to(out);
    return out;
  }

 protected:
  void look_at_flight() override { sender_.look_at_flight(); }

 private:
  Connection& connection_;
  std::size_t payload_bytes_;  // of a slot
  FifoOptions options_;
  MappedSender sender_;
  std::size_t begun_bytes_ = 0;
};

class SimpleRecvFifo final : public RecvFifo {
 public:
  SimpleRecvFifo(Connection& connection, const HostLink& link, const FifoLayout& layout)
      : connection_(connection), layout_(layout), receiver_(connection, link, layout) {}

  Result<bool> arrived(std::size_t bytes) override;
  const void* data() override;
  Status copy_to(void* destination, std::size_t offset, std::size_t bytes) override;
  Status release() override;
  std::uint64_t received() const override { return receiver_.taken(); }
  Result<bool> flush() override { return true; }
  MappedReceiver* mapped() override { return &receiver_; }
  trace::Traffic traffic() const override {
    trace::Traffic out = RecvFifo::traffic();
    receiver_.add_to(out);
    return out;
  }

 private:
  Result<bool> has_next() const;
  Status accept(std::size_t bytes);
  Status accept_offer(std::size_t bytes, std::size_t pieces);
  Status read_offered(std::byte* destination, std::size_t offset, std::size_t bytes);

  Connection& connection_;
  FifoLayout layout_;
  MappedReceiver receiver_;
  bool accepted_ = false;  // the message at hand was looked at and is right
  std::size_t accepted_bytes_ = 0;
  // Pieces of the current message; empty when its bytes are in the slot.
  std::vector<PieceRecord> offered_;
};

}  // namespace unisono::transport
