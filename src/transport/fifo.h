// Two-sided queues of slots over a connection, for each protocol (nccl.txt sections III and V-C).
//
// A fifo is one direction of a connection in one protocol. Message n goes into slot n mod slots.
// The sender may fill a slot when the receiver has given it back (credits: a signal that counts
// messages consumed). How arrival is signalled differs:
//   simple  bytes in the slot, then the message's number in its header (release; acquire to see it)
//   ll      each 8-byte word is 4 bytes of data and a 4-byte flag, stored atomically
//   ll128   each 128-byte line is 120 bytes of data and an 8-byte flag, stored last
// The flag is the message's number, so a slot needs no clearing.
// Where the peer's region is not mapped, a message is a put of a header and the bytes, whose signal
// tells arrival, whatever its protocol: a flag in each word would tell nothing more there. So one
// fifo in each direction, with one set of slots, carries all protocols (carrier()).
//
// Every message carries the call that it belongs to (CallId in base/fingerprint.h), which the
// receiver compares with its own.
//
// A Simple message may instead carry, in its slot, where its bytes lie in the sender's memory;
// the receiver reads them from there (zero-copy). Giving back the slot says that it has.
#pragma once

#include <unisono/result.h>
#include <unisono/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/fingerprint.h"
#include "sys/call_clock.h"
#include "transport/fifo_destinations.h"
#include "transport/traffic.h"
#include "transport/transport.h"

namespace unisono {
class Settings;
}

namespace unisono::transport {

struct FifoOptions {
  int slots = 8;
  std::size_t simple_slot_bytes = 512 << 10;
  std::size_t ll_slot_bytes = 32 << 10;
  std::size_t ll128_slot_bytes = 600 << 10;
  // Whether a message goes into the first slot again whenever the receiver has given back all. The
  // same at both ends.
  bool reuses_slots = false;
  // More than two ranks of a machine share what its memory moves. The same at both ends.
  bool shares_memory_bandwidth = false;
  bool zero_copy = false;
  std::size_t zero_copy_min_bytes = 256 << 10;

  // As they are set: simple_slot_bytes may be 0, for what shared_by() makes of it.
  static FifoOptions from_settings(const Settings& from);
  // For at most so many ranks on a machine, whose slots share its caches; a core has at least
  // `cache_bytes` of its own, by default so many that they set no limit.
  FifoOptions shared_by(int ranks, std::size_t cache_bytes = std::size_t{1} << 40) const;
  // Messages that a connection holds in every transport: some of its credits may be held back.
  int usable_slots() const;
  // Misuse naming the value that cannot be, and what can. Everything below needs checked options.
  Status check() const;
  bool operator==(const FifoOptions&) const = default;
};

// Payload bytes that one slot takes: 512 KiB, 16 KiB, 562.5 KiB by default (Table IV). A message
// that is offered to a receiver which reads it itself may be longer.
std::size_t slot_payload_bytes(const FifoOptions& options, Protocol protocol);
// The signal of a connection with fifos that none of them uses: for puts into exposed memory. It
// lies behind those of the fifos, two of each protocol. Each has a cache line of its own: what one
// user polls, no other one writes.
inline constexpr int signals_per_line = 8;
inline constexpr int in_place_signal = 2 * protocol_count * signals_per_line;
// Region and signals for the fifos of all protocols in one direction, both uses of signals, and
// in_place_signal.
Geometry fifo_geometry(const FifoOptions& options);

// The shortest message that may go directly to memory which its receiver exposes: shorter ones are
// as soon copied.
std::size_t least_direct_bytes(const FifoOptions& options);

struct Piece {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

class MappedSender;
class MappedReceiver;

// The sending end. All calls return at once.
class SendFifo {
 public:
  // `clock` times what is in flight; null: nothing is timed.
  SendFifo(sys::CallClock* clock, Timing timing, std::uint64_t slots)
      : flight_(clock, timing, slots) {}
  virtual ~SendFifo() = default;
  // The call that the messages sent from now on belong to.
  void set_call(const CallId& call) { call_ = call; }
  // Whether a slot is free. Then exactly one of the four ways to send:
  virtual Result<bool> can_send() = 0;
  // (1) Copies the pieces into the message.
  virtual Status send(std::span<const Piece> pieces) = 0;
  // (2) `bytes` of memory to write the message into, 1 to what a slot takes, then commit(). Aligned
  // to 8 bytes, and to 64 if there are so many.
  virtual Result<void*> begin(std::size_t bytes) = 0;
  virtual Status commit() = 0;
  // (3) Zero-copy: the pieces are read where they lie, and must not change until `sources_read()`
  // exceeds this message's number. Only if offers_zero_copy(pieces).
  virtual bool offers_zero_copy(std::span<const Piece> pieces) const = 0;
  virtual Status offer(std::span<const Piece> pieces) = 0;

  // (4) Directly: each piece goes to its offset in memory that the receiver exposes. Only while
  // destinations() are those of this call, and of a message of least_direct_bytes() at
  // least. The pieces must not change until `sources_read()` exceeds this message's number.
  virtual const DestinationList* destinations() { return nullptr; }
  virtual bool sends_directly(std::size_t /*bytes*/, std::size_t /*pieces*/) const { return false; }
  virtual Status send_directly(std::span<const Piece> pieces, std::span<const std::size_t> offsets);

  // Messages sent so far (the next one's number), and messages that the receiver has given back.
  virtual std::uint64_t sent() const = 0;
  virtual std::uint64_t consumed() = 0;
  // Messages whose pieces are read no more: where the receiver reads them, those given back.
  virtual std::uint64_t sources_read() { return consumed(); }
  // Pushes what a non-mapped transport has not taken yet; true when nothing is pending.
  virtual Result<bool> flush() = 0;
  // Whether the transport has not taken all that was sent: then flush() must be called until it
  // has, also while its caller waits for something else.
  bool has_pending() const { return has_pending_; }
  // Memory that it holds in addition to the connection's. Any thread.
  virtual std::size_t memory_bytes() const { return 0; }
  // Simple in mapped memory: what it is made of, for whoever sends without these calls; else
  // nullptr.
  virtual MappedSender* mapped() { return nullptr; }
  // Whether an event ends the wait for a credit (Connections::sleep): memory that is mapped has
  // none.
  virtual bool has_events() const { return false; }

  // What it has carried. Any thread.
  virtual trace::Traffic traffic() const;
  // Where the thread that drives counts what reaches the peer without messages.
  TrafficCounter& counter() { return counter_; }
  FlightMeter& flight() { return flight_; }
  // Looks which of the messages in flight have landed, while their sender waits.
  void settle() {
    if (flight_.is_in_flight()) look_at_flight();
  }
  // The call that used it ends.
  void end_call() {
    settle();
    flight_.end_call();
  }

 protected:
  virtual void look_at_flight() = 0;

  CallId call_;
  bool has_pending_ = false;
  TrafficCounter counter_;
  FlightMeter flight_;
};

// The receiving end. All calls return at once.
class RecvFifo {
 public:
  virtual ~RecvFifo() = default;
  // The call that the messages looked for from now on belong to.
  void set_call(const CallId& call) { call_ = call; }
  // Whether the next message, of exactly `bytes`, is there. The receiver knows the size from the
  // plan; another size is a peer error, naming both. A message of another call is one, too, that
  // names both calls and no rank at fault: which of the two is wrong is not known here.
  virtual Result<bool> arrived(std::size_t bytes) = 0;
  // Then its bytes, contiguous; or nullptr if it must be taken with copy_to (zero-copy offers).
  // Valid until release().
  virtual const void* data() = 0;
  // Copies bytes [offset, offset + bytes) of the message. Any parts, in any order.
  virtual Status copy_to(void* destination, std::size_t offset, std::size_t bytes) = 0;
  // Exposes memory to the sender for a call that begins, with the chunk at which each message of a
  // tile belongs there, as DestinationList has them; until withdraw(), at the end of the call.
  virtual bool can_expose() const { return false; }
  virtual Status expose(void* memory, std::size_t bytes, std::span<const std::int32_t> chunks);
  virtual void withdraw() {}
  // Whether the message at hand lies at its destination already.
  virtual bool is_direct() const { return false; }
  // Gives the slot back: at once and each one, because a plan that is proved free of deadlock with
  // so many slots is proved for credits that are not held back.
  virtual Status release() = 0;
  // Messages received so far.
  virtual std::uint64_t received() const = 0;
  // Pushes credits that a non-mapped transport has not taken yet; true when nothing is pending.
  virtual Result<bool> flush() = 0;
  // As SendFifo's.
  virtual MappedReceiver* mapped() { return nullptr; }
  // Whether a message's arrival is an event that ends a sleep.
  virtual bool has_events() const { return false; }

  // As SendFifo's.
  virtual trace::Traffic traffic() const;
  TrafficCounter& counter() { return counter_; }

 protected:
  CallId call_;
  TrafficCounter counter_;
};

// The protocol whose fifo carries messages of `protocol` over this connection, once it is ready:
// itself where memory is mapped, else one for all, because messages differ in nothing there.
Protocol carrier(const Connection& connection, Protocol protocol);

// Only when the connection is ready; one of each direction and carrier() for its lifetime. The fifo
// must not outlive the connection.
std::unique_ptr<SendFifo> make_send_fifo(Connection& connection, Protocol protocol,
                                         const FifoOptions& options,
                                         sys::CallClock* clock = nullptr);
Result<std::unique_ptr<RecvFifo>> make_recv_fifo(Connection& connection, Protocol protocol,
                                                 const FifoOptions& options);

}  // namespace unisono::transport
