// LL and LL128 over a mapped region: the data carry their own arrival.
#pragma once

#include <memory>

#include "transport/aligned_bytes.h"
#include "transport/fifo_codecs.h"
#include "transport/fifo_credits.h"
#include "transport/fifo_memory.h"

namespace unisono::transport {

template <class Codec>
class FlaggedSendFifo final : public SendFifo {
 public:
  FlaggedSendFifo(Connection& connection, const HostLink& link, const FifoLayout& layout,
                  sys::CallClock* clock)
      : SendFifo(clock, Timing::some_calls, layout.slots),
        region_(link.region),
        layout_(layout),
        messages_(connection, layout),
        memory_(connection, layout),
        staging_(layout.payload_bytes) {}

  Result<bool> can_send() override { return messages_.has_free_slot(); }
  Status send(std::span<const Piece> pieces) override;
  Result<void*> begin(std::size_t bytes) override;
  Status commit() override;
  bool offers_zero_copy(std::span<const Piece>) const override { return false; }
  Status offer(std::span<const Piece>) override {
    return bug("memory was offered over LL or LL128; only the Simple protocol can");
  }
  std::uint64_t sent() const override { return messages_.sent(); }
  std::uint64_t consumed() override { return messages_.consumed(); }
  Result<bool> flush() override { return true; }

 protected:
  void look_at_flight() override { flight_.land_below(messages_.consumed()); }

 private:
  Status encode(const std::byte* source, std::size_t bytes);

  std::byte* region_;  // the peer's
  FifoLayout layout_;
  SentMessages messages_;
  SlotMemory memory_;
  AlignedBytes staging_;  // a message that is written here, or gathered from pieces
  std::size_t begun_bytes_ = 0;
};

template <class Codec>
class FlaggedRecvFifo final : public RecvFifo {
 public:
  FlaggedRecvFifo(Connection& connection, const FifoLayout& layout)
      : connection_(connection),
        layout_(layout),
        messages_(connection, layout),
        staging_(layout.payload_bytes) {}

  Result<bool> arrived(std::size_t bytes) override;
  const void* data() override { return staging_.data(); }
  Status copy_to(void* destination, std::size_t offset, std::size_t bytes) override;
  Status release() override;
  std::uint64_t received() const override { return messages_.taken(); }
  Result<bool> flush() override { return messages_.flushed(); }

 private:
  Connection& connection_;
  FifoLayout layout_;
  TakenMessages messages_;
  AlignedBytes staging_;  // the data of the message at hand, as far as they have come
  Decoding decoding_;
  bool complete_ = false;
  std::size_t bytes_ = 0;  // of the message at hand
};

extern template class FlaggedSendFifo<LlCodec>;
extern template class FlaggedSendFifo<Ll128Codec>;
extern template class FlaggedRecvFifo<LlCodec>;
extern template class FlaggedRecvFifo<Ll128Codec>;

}  // namespace unisono::transport
