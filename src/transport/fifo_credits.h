// Credits: which slots the sender may fill.
#pragma once

#include <unisono/result.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/error.h"
#include "transport/fifo_layout.h"
#include "transport/traffic.h"
#include "transport/transport.h"

namespace unisono::transport {

// The sender's count of what it took (slots, or heads), and of what the receiver has given back.
class SentMessages {
 public:
  SentMessages(Connection& connection, const FifoLayout& layout)
      : SentMessages(connection, layout.credit_signal, layout.slots) {}
  SentMessages(Connection& connection, int credit_signal, std::uint64_t slots)
      : given_back_(&connection.signals()[credit_signal]),
        slots_(slots),
        peer_(connection.peer()) {}

  // Looks at the signal only when the slots known to be free are used up: its line is written by
  // the peer, and every look may fetch it from there.
  Result<bool> has_free_slot() {
    if (knows_free_slot()) return true;
    // Acquire: the receiver's reads of a slot happen before our next writes to it.
    const std::uint64_t consumed = given_back_->load(std::memory_order_acquire);
    if (consumed < consumed_ || consumed > sent()) [[unlikely]]
      return peer_error(peer_, "rank ", peer_, " released ", consumed,
                        " slots in total; it had released ", consumed_, " before, and ", sent(),
                        " messages were sent");
    consumed_ = consumed;
    return knows_free_slot();
  }

  // Whether the receiver has given back all.
  bool has_all_back() {
    if (consumed_ == sent()) return true;
    // Acquire, as above.
    if (given_back_->load(std::memory_order_acquire) != sent()) return false;
    consumed_ = sent();
    return true;
  }

  bool knows_free_slot() const { return sent() - consumed_ < slots_; }

  // Any thread.
  std::uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }
  void add() { add_relaxed(sent_, 1); }
  // Acquire: as above, for memory that was offered.
  std::uint64_t consumed() const {
    return std::min(given_back_->load(std::memory_order_acquire), sent());
  }

 private:
  const std::atomic<std::uint64_t>* given_back_;
  std::uint64_t slots_;
  int peer_;
  std::atomic<std::uint64_t> sent_{0};
  std::uint64_t consumed_ = 0;
};

// The receiver's count of messages taken, told to the sender one by one, or several at once where
// telling costs a message; of messages that flags in the data announce, or a signal.
class TakenMessages {
 public:
  TakenMessages(Connection& connection, const FifoLayout& layout)
      : connection_(connection),
        link_(connection.host_link()),
        credit_signal_(layout.credit_signal),
        short_bytes_(layout.short_bytes),
        together_(credits_together(layout.slots)) {}

  std::uint64_t taken() const { return taken_; }

  Status give_back(std::size_t bytes) {
    ++taken_;
    if (link_ != nullptr) {
      // Release: our reads of the slot, and of offered memory, happen before the sender's next
      // writes.
      link_->signals[credit_signal_].store(taken_, std::memory_order_release);
      return {};
    }
    if (bytes <= short_bytes_ && taken_ - told_ < together_) return {};
    told_ = taken_;
    // A put of no bytes is always taken.
    auto put = connection_.try_put(nullptr, 0, 0, {credit_signal_, taken_});
    if (!put.ok()) return put.take_error();
    last_put_ = connection_.puts_started();
    return {};
  }

  bool flushed() const { return connection_.puts_completed() >= last_put_; }

 private:
  Connection& connection_;
  const HostLink* link_;
  int credit_signal_;
  std::size_t short_bytes_;
  std::uint64_t together_;  // credits of short puts that are told at once
  std::uint64_t taken_ = 0;
  std::uint64_t told_ = 0;  // of them, by a put
  std::uint64_t last_put_ = 0;
};

inline std::size_t total_bytes(std::span<const Piece> pieces) {
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

// A message's size as the caller of a SendFifo must keep it.
inline Status check_message(std::size_t bytes, std::size_t payload_bytes) {
  if (bytes > 0 && bytes <= payload_bytes) return {};
  return bug("a message has ", bytes, " bytes; a slot holds 1 to ", payload_bytes);
}

// A part of the message at hand as the caller of a RecvFifo must name it.
inline Status check_part(std::size_t offset, std::size_t bytes, std::size_t message_bytes) {
  if (bytes <= message_bytes && offset <= message_bytes - bytes) return {};
  return bug("bytes ", offset, " to ", offset + bytes, " are outside of a message of ",
             message_bytes, " bytes");
}

// The two ends do not agree on what is sent.
Error size_mismatch(const Connection& connection, std::uint64_t number, std::uint64_t sent,
                    std::uint64_t expected);

// The two ends call what does not match.
Error call_mismatch(const Connection& connection, const CallId& theirs, const CallId& ours);

}  // namespace unisono::transport
