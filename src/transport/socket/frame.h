// What travels on a stream once it has joined its connection: frames of a head and, for puts,
// pieces and answers, bytes. Where the stream is sealed, a tag of 16 bytes follows the head, and
// another one the bytes; heads stay readable.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.h"

namespace unisono::transport::socket {

// Which frames have numbers. Both ends have the same number of rails, which decides it.
enum class Numbers : std::uint8_t {
  of_pieces,  // one rail
  of_all,     // several rails: another stream brings what was lost with one that has ended
};

// A connection has one stream or several. A short put into the region, and with one stream any such
// put, is one frame on stream 0. Others are cut into pieces, which have the numbers 0, 1, ... over
// all streams and travel on any of them, in order on each. A signal, on stream 0, says how many
// pieces were cut before it; it is stored when all of them have come. A get is a frame on stream 0;
// the n-th one is answered by pieces that name n.
//
// Over several rails, puts, signals and gets take numbers of the same sequence and travel on any
// stream. A signal is stored when all that has smaller numbers has come, and gets are answered in
// the order of their numbers. The receiver acknowledges what has come in order, and the sender
// keeps the rest. An end that reads a stream no more says so on all others, with a count of the
// numbered frames that came on it: from then on nothing of that stream can land, and the sender
// gives those that did not come to other streams, under the same numbers.
struct Frame {
  enum class Type : std::uint32_t {
    put = 1,  // bytes follow; then the signal, if there is one
    piece,    // bytes follow
    signal,
    fault,   // value: packed; this connection is given up
    bye,     // this end leaves; nothing follows on this stream. One on each
    get,     // asks for `pieces` bytes at `offset` of the exposed memory `value`
    answer,  // as a piece; bytes of get number `value`, at `offset` of what it asked for
    whole,   // the answer before it on this stream is: none of its bytes was replaced by zeros
    // Over several rails:
    acknowledge,  // all numbers below `pieces` have come
    closed,       // stream `value` is read no more; `pieces` numbered frames have come on it. Of a
                  // stream that has come back, `offset` says how often
  };
  static constexpr std::uint32_t no_signal = 0xffffffff;

  Type type = Type::put;
  std::uint32_t signal = no_signal;
  std::uint64_t offset = 0;  // in the receiver's region, or in memory that it exposes
  std::uint64_t bytes = 0;   // that follow
  std::uint64_t value = 0;   // of the signal; of a piece, the key of exposed memory, or 0
  // How many were cut before this piece, answer, put or signal: its number, if it has one.
  std::uint64_t pieces = 0;

  // The key of the exposed memory that its bytes go to; 0: they go elsewhere.
  std::uint64_t memory() const { return type == Type::piece ? value : 0; }
  // Of a get, whose `pieces` are the bytes that it asks for, `signal` has the number's low bits.
  void set_number(std::uint64_t number) {
    if (type == Type::get)
      signal = static_cast<std::uint32_t>(number);
    else
      pieces = number;
  }
  bool is_in_region() const { return type == Type::put || (type == Type::piece && value == 0); }
};

// Type and signal, 4 bytes each, and four numbers of 8 bytes, little-endian.
inline constexpr std::size_t frame_bytes = 40;
using FrameBytes = std::array<std::byte, frame_bytes>;

FrameBytes encode(const Frame& frame);
Frame decode(std::span<const std::byte, frame_bytes> bytes);

// Whether the peer may send this frame, on this stream, to a connection of this geometry.
Status check(const Frame& frame, int stream, Numbers numbers, const Geometry& geometry, int peer);

}  // namespace unisono::transport::socket
