// What was given to the streams of a connection over several rails and is not acknowledged, so that
// another stream can bring it when the one that had it has ended.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/lanes/arrivals.h"
#include "transport/socket/frame.h"
#include "transport/socket/ring.h"

namespace unisono::transport::socket {

class Retained {
 public:
  explicit Retained(std::size_t streams) : given_(streams) {}

  // The token of frames that no put waits for.
  static constexpr std::uint64_t no_put = ~std::uint64_t{0};

  struct Item {
    Frame frame;
    const std::byte* payload;  // nullptr: it has none, or that may not be read any more
    std::vector<std::byte> copy;
    std::uint64_t put;  // the token of its put; no_put once that does not wait for this frame
    bool may_be_copied;
    std::size_t stream;   // that it was given to last; no_stream once that has ended
    std::uint64_t place;  // it is its stream's so manieth
    bool waits;           // on its stream, or to be given to another
    bool is_piece() const {
      return frame.type == Frame::Type::piece || frame.type == Frame::Type::answer;
    }
    bool is_lost() const { return frame.bytes > 0 && payload == nullptr; }
  };

  // Half of what the receiver counts ahead: it is never further behind than that.
  static constexpr std::uint64_t most = Arrivals::window / 2;
  bool has_room() const { return items_.size() < most; }
  std::uint64_t begin() const { return items_.begin(); }
  std::uint64_t next() const { return items_.end(); }
  Item& operator[](std::uint64_t number) { return items_[number]; }

  // Pieces are copied up to so much; other payloads are at most 16 KiB, and always copied. A peer
  // acknowledges pieces at once, so none waits for long.
  static constexpr std::size_t most_copied_bytes = std::size_t{1} << 20;

  // The next frame, which has its number and goes to this stream. Its put waits for it: until it
  // has left, where it may be copied, so that the peer may look later; else until it is
  // acknowledged, because what is long is read again from where it lies.
  void add(const Frame& frame, const std::byte* payload, std::uint64_t put, std::size_t stream,
           bool may_be_copied);
  void give(Item& item, std::size_t stream);
  // Its stream does not read its payload any more. For its put, if that waited for this; whether it
  // still waits for the acknowledgement.
  struct Left {
    std::uint64_t put;
    bool is_awaited;
  };
  Left left(std::uint64_t number);
  // The first has been acknowledged.
  void pop();

  // The peer counted `came` frames on a stream that has ended: the others are to be given again, in
  // the order of their numbers.
  Status lose(std::size_t stream, std::uint64_t came, int peer);
  // Another stream in the place of one that has ended, after lose().
  void reopen(std::size_t stream) { given_[stream] = 0; }
  const Ring<std::uint64_t>& lost() const { return lost_; }
  void lost_is_given() { lost_.pop(); }

  // From now on no payload is read but copies. With `put`, only of frames of this one.
  void drop_payloads();
  void drop_payload(std::uint64_t put);

  static constexpr std::size_t no_stream = ~std::size_t{0};

  std::size_t memory_bytes() const {
    return items_.memory_bytes() + lost_.memory_bytes() + copied_bytes_;
  }

 private:
  Ring<Item> items_;
  std::vector<std::uint64_t> given_;  // to each stream
  Ring<std::uint64_t> lost_;
  std::size_t copied_bytes_ = 0;
};

}  // namespace unisono::transport::socket
