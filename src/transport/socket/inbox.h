// The receiving half of a connection: frames that arrive on its streams, their bytes directly into
// the region, into exposed memory or to where gets want them, and signals that wait for the pieces
// before them.
#pragma once

#include <unisono/result.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/exposed_memory.h"
#include "transport/lanes/arrivals.h"
#include "transport/socket/gets.h"
#include "transport/socket/outbox.h"

namespace unisono::transport::socket {

// Assembles the frames of one stream. Knows nothing of sockets: room() says where the next bytes
// go, took() that so many have come.
class FrameReader {
 public:
  struct Room {
    std::byte* payload;  // the rest of a payload that is under way; may be empty
    std::size_t payload_bytes;
    std::byte* buffer;  // and what comes behind it
    std::size_t buffer_bytes;
  };

  // `opener` where frames are sealed, else nullptr.
  FrameReader(std::byte* region, const ExposedMemory& exposed, Gets& gets, const Geometry& geometry,
              int stream, int peer, sys::Seal* opener, Numbers numbers = Numbers::of_pieces)
      : region_(region),
        exposed_(&exposed),
        gets_(&gets),
        geometry_(geometry),
        stream_(stream),
        peer_(peer),
        opener_(opener),
        numbers_(numbers) {}

  Room room();
  void took(std::size_t bytes);
  // The next frame whose payload is at its place wholly; nothing when more bytes are needed. A
  // frame that the peer must not send is an error, and so is one whose seal is broken. Sealed bytes
  // go to the place that a head names once the head's seal is right; the frame is given out only
  // when theirs is, too.
  Result<std::optional<Frame>> next();
  // Whether it stands between two frames.
  bool between_frames() const { return !current_ && begin_ == end_; }
  // The key of the exposed memory that a payload which is under way goes to; else 0.
  std::uint64_t memory() const { return current_ ? current_->memory() : 0; }
  // Whether one goes to where a get wants it.
  bool is_answer() const { return current_ && current_->type == Frame::Type::answer; }
  // The stream has ended, and what is under way comes again on another.
  void drop();

 private:
  // Bytes that are read along with a head are copied to their place, so at most so many: a message
  // of 4 KiB with its heads and seals, for which another system call would cost more. Where the
  // last payload was longer, the next one is, too: then what begins it, and the rest goes to its
  // place at once (copying 4 KiB of each piece of a long put costs 8 % of its CPU time).
  static constexpr std::size_t buffer_bytes = std::size_t{4352};
  static constexpr std::size_t head_buffer_bytes = std::size_t{1} << 10;
  using SealTag = std::span<const std::byte, sys::Seal::tag_bytes>;

  Result<std::optional<Frame>> next_head();
  Result<std::byte*> place_of(const Frame& frame);
  void land(const std::byte* from, std::size_t bytes);
  Status check_seal(SealTag tag);
  std::size_t buffered() const { return end_ - begin_; }
  std::size_t payload_left() const {
    return current_ ? static_cast<std::size_t>(current_->bytes) - payload_done_ : 0;
  }

  std::byte* region_;
  const ExposedMemory* exposed_;
  Gets* gets_;
  Geometry geometry_;
  int stream_;
  int peer_;
  sys::Seal* opener_;
  Numbers numbers_;
  std::array<std::byte, buffer_bytes> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t read_ahead_ = buffer_bytes;  // how much of the buffer is used
  std::optional<Frame> current_;           // its payload is under way
  std::byte* place_ = nullptr;             // of that payload
  std::size_t payload_done_ = 0;
};

class Inbox {
 public:
  // `peer` of `ranks`.
  Inbox(Streams& streams, std::byte* region, const ExposedMemory& exposed, Gets& gets,
        std::atomic<std::uint64_t>* signals, const Geometry& geometry, int peer, int ranks,
        Numbers numbers = Numbers::of_pieces);

  // Takes what has come, on streams that are ready. An error is final.
  Status receive();

  // Whether bytes for this exposed memory, or for any and for gets (0), are under way.
  bool receives_into(std::uint64_t memory) const;

  // What the peer told last.
  const std::optional<Fault>& fault() const { return fault_; }
  // Whether it said so on every stream: an end without that is a broken connection.
  bool said_bye() const;
  // Whether it said so on one stream.
  bool has_left() const { return std::ranges::any_of(incoming_, &Incoming::said_bye); }
  // Nothing more will come: all streams have ended or, where others do not bring what was lost, one
  // has broken.
  bool over() const;

  // With numbers of all frames. What the peer has, by its word.
  std::uint64_t acknowledged() const { return acknowledged_; }
  // What the peer is to be told that this end has: at once where it waits for it, else seldom.
  std::optional<std::uint64_t> acknowledgement() const;
  std::uint64_t in_order() const { return arrivals_.in_order(); }
  void told_acknowledgement() { told_ = arrivals_.in_order(); }
  // Whether a stream ended though its peer had not left.
  bool has_died(std::size_t stream) const {
    const Incoming& from = incoming_[stream];
    return from.ended && !from.said_bye && !from.is_closed;
  }
  bool has_ended(std::size_t stream) const { return incoming_[stream].ended; }
  // The system's code for the end; 0 where there was no error.
  int code(std::size_t stream) const { return incoming_[stream].code; }
  // Nothing of the stream lands from now on. The acknowledgement that was told may have been on it.
  void close(std::size_t stream);
  bool is_closed(std::size_t stream) const { return incoming_[stream].is_closed; }
  // Another stream in its place, which is open.
  void reopen(std::size_t stream);
  // One that both ends have closed may come back, again and again. Its number among these.
  std::uint32_t generation(std::size_t stream) const { return incoming_[stream].generation; }
  // A generation that joined at one end alone: it is closed, and nothing came on it.
  void skip(std::size_t stream);
  // Whether a frame has come on it.
  bool has_heard(std::size_t stream) const { return incoming_[stream].has_heard; }
  // How many numbered frames have come on it.
  std::uint64_t came(std::size_t stream) const { return incoming_[stream].came; }
  // How many of this end's came at the peer, which does not read the stream any more.
  const std::optional<std::uint64_t>& came_at_peer(std::size_t stream) const {
    return incoming_[stream].came_at_peer;
  }

  std::size_t memory_bytes() const {
    return waiting_.memory_bytes() + waiting_gets_.memory_bytes() +
           incoming_.capacity() * sizeof(Incoming) + arrivals_.memory_bytes();
  }

 private:
  struct Incoming {
    FrameReader reader;
    // The number of a piece that has come and is not counted yet: it is too far ahead of others.
    std::optional<std::uint64_t> ahead;
    std::optional<Frame> answer;  // that has not been confirmed
    bool said_bye = false;
    bool ended = false;
    bool is_closed = false;
    bool has_heard = false;
    int code = 0;
    std::uint32_t generation = 0;
    std::uint64_t came = 0;
    std::optional<std::uint64_t> came_at_peer;
  };
  struct WaitingGet {
    Frame frame;
    std::uint64_t pieces;
  };
  struct WaitingSignal {
    std::uint32_t index;
    std::uint64_t value;
    std::uint64_t pieces;
  };
  // What nobody waits for is acknowledged when so many frames have come.
  static constexpr std::uint64_t acknowledge_each = 32;
  // Then stream 0 is not read until the pieces that its signals wait for have come.
  static constexpr std::uint64_t max_waiting_signals = 1024;

  Incoming incoming_of(std::size_t stream) const;
  Status receive_from(std::size_t stream);
  Status take_frames(std::size_t stream);
  Status accept(const Frame& frame, std::size_t stream);
  Status note_piece(std::uint64_t number, std::size_t stream, bool is_awaited);
  std::uint64_t number_of(const Frame& frame) const;
  Status accept_get(const Frame& get, std::uint64_t number, std::size_t stream);
  Status accept_closed(const Frame& frame);
  Status release_gets();
  bool all_have_numbers() const { return numbers_ == Numbers::of_all; }
  bool have_pieces(std::uint64_t pieces) const { return arrivals_.in_order() >= pieces; }
  void release_signals();
  bool may_read(std::size_t stream) const {
    return !incoming_[stream].ahead && !incoming_[stream].is_closed &&
           (stream != 0 || all_have_numbers() || waiting_.size() < max_waiting_signals);
  }

  Streams& streams_;
  std::byte* region_;
  const ExposedMemory& exposed_;
  Gets& gets_;
  Geometry geometry_;
  std::atomic<std::uint64_t>* signals_;
  int peer_;
  int ranks_;
  Numbers numbers_;
  std::vector<Incoming> incoming_;
  Arrivals arrivals_;
  Ring<WaitingSignal> waiting_;    // the least number first
  Ring<WaitingGet> waiting_gets_;  // likewise
  std::uint64_t last_pieces_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t told_ = 0;
  std::uint64_t awaited_ =
      0;                     // the peer waits for the acknowledgement of a frame below this number
  std::uint64_t total_ = 0;  // that the peer has sent when it leaves
  std::optional<Fault> fault_;
};

}  // namespace unisono::transport::socket
