// All protocols over a connection that is not mapped: a put of a header and the bytes, whose signal
// counts messages.
//
// Its memory: at the receiver, eight slots by default, of which each message touches what it needs.
// At the sender, nothing for messages of more than 16 KiB that lie in the call's buffers: they are
// put from there. What the engine computes for a message, and shorter ones, is staged until the
// connection has read it, in as many buffers as such messages are under way.
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include "transport/aligned_bytes.h"
#include "transport/fifo_credits.h"

namespace unisono::transport {

class PutSendFifo final : public SendFifo {
 public:
  PutSendFifo(Connection& connection, const FifoLayout& layout, sys::CallClock* clock);

  Result<bool> can_send() override;
  Status send(std::span<const Piece> pieces) override;
  Result<void*> begin(std::size_t bytes) override;
  Status commit() override;
  bool offers_zero_copy(std::span<const Piece> pieces) const override {
    return puts_from_place(total_bytes(pieces), pieces.size());
  }
  Status offer(std::span<const Piece> pieces) override;
  const DestinationList* destinations() override;
  bool sends_directly(std::size_t bytes, std::size_t pieces) const override {
    return puts_from_place(bytes, pieces);
  }
  Status send_directly(std::span<const Piece> pieces,
                       std::span<const std::size_t> offsets) override;
  std::uint64_t sent() const override { return messages_.sent(); }
  std::uint64_t consumed() override { return messages_.consumed(); }
  std::uint64_t sources_read() override;
  Result<bool> flush() override;
  std::size_t memory_bytes() const override;
  bool has_events() const override { return true; }

 protected:
  void look_at_flight() override;

 private:
  static constexpr std::size_t max_offered = 8;

  // A message that the connection may not have read: its header and bytes in `staging`, or its
  // bytes in `offered`. Its place is free again when it has been read and its slot given back: the
  // peer, whose word the second is, cannot make this end write to what is still being sent.
  struct Pending {
    AlignedBytes staging;
    PutHeader header{};
    std::size_t bytes = 0;
    std::array<Piece, max_offered> offered;
    std::size_t offered_count = 0;
    std::size_t parts_put = 0;
    std::size_t bytes_put = 0;
    std::uint64_t last_put = 0;  // the connection's count after its last one
    // Of a direct message: where its pieces go, before its header does.
    RemoteMemory memory;
    std::array<std::size_t, max_offered> offsets;
  };

  // Buffers of one kind of messages that wait for the next one.
  using Free = std::vector<AlignedBytes>;
  // Those for long messages that stay between calls: to take another costs little beside filling
  // it.
  static constexpr std::size_t most_kept = 2;

  bool is_short(std::size_t bytes) const { return bytes <= layout_.short_bytes; }
  bool puts_from_place(std::size_t bytes, std::size_t pieces) const {
    return pieces <= max_offered && !is_short(bytes) && bytes <= layout_.payload_bytes;
  }
  // For the next message: room for its header and so many bytes.
  std::byte* stage(std::size_t bytes);
  void unstage(Pending& message);
  void note_read();
  void free_unneeded();
  Pending& pending(std::uint64_t number) {
    return pending_[static_cast<std::size_t>(number % layout_.slots)];
  }
  Status publish(std::size_t bytes, std::span<const Piece> offered, std::uint64_t flags = 0);
  void count_staged(std::size_t before, std::size_t now) {
    staged_bytes_.fetch_add(now - before, std::memory_order_relaxed);
  }
  Status push();
  Result<bool> push_message(Pending& message);
  Result<bool> push_direct(Pending& message);

  Connection& connection_;
  FifoLayout layout_;
  SentMessages messages_;
  std::vector<Pending> pending_;
  Free free_short_, free_long_;
  std::atomic<std::size_t> staged_bytes_{0};  // of all of them; a report may come from any thread
  std::uint64_t pushed_ = 0;                  // messages that the connection has taken
  std::uint64_t read_ = 0;                    // messages that it has read
  std::size_t begun_bytes_ = 0;
  DestinationList destinations_;
  std::uint64_t destinations_known_ = 0;  // the signal that told of them
};

class PutRecvFifo final : public RecvFifo {
 public:
  PutRecvFifo(Connection& connection, const FifoLayout& layout)
      : connection_(connection), layout_(layout), messages_(connection, layout) {}

  Result<bool> arrived(std::size_t bytes) override;
  const void* data() override { return is_direct_ ? nullptr : slot() + sizeof(SlotHeader); }
  Status copy_to(void* destination, std::size_t offset, std::size_t bytes) override;
  bool can_expose() const override { return connection_.puts_in_place(); }
  Status expose(void* memory, std::size_t bytes, std::span<const std::int32_t> chunks) override;
  void withdraw() override;
  bool is_direct() const override { return accepted_ && is_direct_; }
  Status release() override;
  std::uint64_t received() const override { return messages_.taken(); }
  Result<bool> flush() override {
    return messages_.flushed() && connection_.puts_completed() >= destinations_put_;
  }
  bool has_events() const override { return true; }

 private:
  const std::byte* slot() const {
    return connection_.region() + layout_.slot_offset(messages_.taken());
  }
  Status accept(std::size_t bytes);

  Connection& connection_;
  FifoLayout layout_;
  TakenMessages messages_;
  std::uint64_t known_arrived_ = 0;
  bool accepted_ = false;  // the message at hand was looked at and is right
  std::size_t accepted_bytes_ = 0;
  bool is_direct_ = false;
  RemoteMemory exposed_;
  DestinationList destinations_;        // as they were put last
  std::uint64_t destinations_put_ = 0;  // the connection's count after that
  std::uint64_t lists_put_ = 0;
};

}  // namespace unisono::transport
