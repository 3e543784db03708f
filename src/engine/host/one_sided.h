// The memory of other ranks, as one-sided steps reach it.
//
// A put or a read needs to know where the peer's buffers of this very call lie, and that the peer
// still has them. So the partners of a plan (engine.h) tell each other when a call begins, with
// those addresses, and when they are done with the other's memory; a rank's call is complete when
// all of its partners are done with it.
//
// Partners expose their output and scratch to each other for the call. Where the transport reaches
// exposed memory, a put goes to its place there, and the peer's engine takes no part. Elsewhere,
// and where the source must be scaled first, a put travels as a notice and its bytes through the
// slots of a connection of its own, and the peer's engine stores them whenever it is polled. Where
// this process can read the peer's memory a read does so; else it is a request and an answer of the
// same kind. A token says which puts came before it, and the wait that takes it waits for these
// too.
//
// Notices of one call are all taken before it is complete, so calls do not mix.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/host/memory.h"

namespace unisono::engine {

struct CallState;

// Chunks of one step in one tile, in a peer's memory.
struct RemotePart {
  plan::Buffer buffer;
  std::int32_t count;
  std::int64_t chunk;
  std::int64_t tile;
  std::uint64_t bytes;
};

// How far a step that reaches into a peer's memory has come, kept by its thread block.
struct RemoteStep {
  bool is_asked = false;
  bool is_timed = false;      // a put in place, in flight
  std::uint64_t ticket = 0;   // of what it sent; valid once asked
  std::size_t bytes_put = 0;  // of a put in place, taken by the transport
};

// The puts to a peer that came before a token, in this call.
struct PutCounts {
  std::uint64_t staged = 0;
  std::uint64_t in_place = 0;  // the signal of the last one; 0: there was none
};

class OneSided {
 public:
  OneSided(std::span<const int> partners, const transport::FifoOptions& options);

  bool has_partners() const { return !partners_.empty(); }
  void start(CallState& call);
  // Takes and sends what is pending; true if anything moved.
  Result<bool> advance(CallState& call);
  // Once this rank's steps are done: whether all partners are done with its memory.
  Result<bool> depart(CallState& call);

  // Whether the peer has begun this call.
  bool has_entered(int peer) { return find(peer).entered; }
  // Stores `source` there: true when it need not be kept any more. To be called until then.
  Result<bool> put(CallState& call, int peer, const RemotePart& target,
                   const std::vector<Extent>& source, bool raw, RemoteStep& step);
  // destination = destination (+) what is there: true when done. To be called until then.
  Result<bool> read_reduce(CallState& call, int peer, const RemotePart& source, int thread_block,
                           const std::vector<Extent>& destination, RemoteStep& step);

  // Those to a peer that are on their way or were; none for ranks that are no partners.
  PutCounts puts_to(int peer) const;
  // Of those of the peer, as far as they have arrived.
  PutCounts puts_from(int peer) const;

  // Which partners are not done, if that is what the call waits for.
  std::vector<Waiting> waits() const;

 private:
  // What goes between partners, each followed by its bytes, if it has any.
  enum class Kind : std::uint32_t { enter, put, ask, answer, leave };
  struct Entrance {
    std::uint64_t input, output, scratch;   // addresses
    std::uint64_t output_key, scratch_key;  // of what is exposed
    double real;                            // its scalar of a pre-multiplied sum
    std::int64_t integer;
  };
  struct Notice {
    Kind kind = Kind::enter;
    std::int32_t thread_block = 0;  // that asks
    union {
      Entrance entrance{};
      RemotePart part;
    };
  };
  static_assert(sizeof(Notice) <= 64, "the least that a slot holds");

  struct Outgoing {
    Notice notice;
    std::vector<Extent> payload;
    bool raw = false;
  };
  // A read that a thread block waits for.
  struct Read {
    int thread_block = -1;
    std::uint64_t bytes = 0;
    std::vector<Extent> destination;
  };
  struct Partner {
    int rank = -1;
    transport::Connection* connection = nullptr;
    transport::SendFifo* send = nullptr;
    transport::RecvFifo* recv = nullptr;
    bool is_told = false;     // that this rank has begun,
    bool is_leaving = false;  // and that it is done
    bool entered = false;
    bool left = false;
    transport::RemoteMemory exposed_output, exposed_scratch;  // ours, to it
    transport::RemoteMemory output, scratch;                  // its own
    CallMemory memory;                                        // addresses of its process
    ScaleFactor factor;
    std::deque<Outgoing> outgoing;
    bool notice_is_sent = false;     // of the first that is outgoing
    std::size_t payload_done = 0;    // of its bytes
    std::uint64_t queued = 0;        // notices so far
    std::uint64_t sent = 0;          // of them
    PutCounts puts;                  // to it
    std::uint64_t puts_arrived = 0;  // of the peer, staged ones
    Notice incoming;
    bool has_incoming = false;      // its bytes have not all arrived
    std::size_t incoming_done = 0;  // of them
    std::vector<Extent> incoming_place;
    std::vector<Read> reads;
  };

  Partner& find(int peer);
  static const transport::RemoteMemory& exposed_at(const Partner& partner, plan::Buffer buffer) {
    return buffer == plan::Buffer::scratch ? partner.scratch : partner.output;
  }
  Status connect(CallState& call, Partner& partner);
  // Exposes this rank's memory and queues the notice of it.
  Status enter(CallState& call, Partner& partner);
  void leave(Partner& partner);
  Result<transport::RemoteMemory> expose(const CallState& call, Partner& partner,
                                         plan::Buffer buffer);
  std::uint64_t queue(Partner& partner, Outgoing outgoing);
  Result<bool> push(CallState& call, Partner& partner);
  Result<bool> pull(CallState& call, Partner& partner);
  Status take(CallState& call, Partner& partner);
  Status take_part(CallState& call, Partner& partner);
  Status take_payload(CallState& call, Partner& partner, std::size_t bytes);
  // Where a part lies in this rank's memory; an error that names the peer if it cannot.
  Status place(const CallState& call, const Partner& partner, const RemotePart& part);
  Result<bool> put_in_place(Partner& partner, const RemotePart& target,
                            const std::vector<Extent>& source, RemoteStep& step);
  Status read_directly(CallState& call, Partner& partner, const RemotePart& source,
                       const std::vector<Extent>& destination);

  std::vector<Partner> partners_;
  std::size_t payload_bytes_;  // of a slot
  Entrance entrance_{};
  bool departing_ = false;
  std::vector<Extent> there_;
  std::vector<std::byte> bounce_;
};

}  // namespace unisono::engine
