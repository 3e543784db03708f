#include "transport/socket/frame.h"

#include "base/error.h"

namespace unisono::transport::socket {
namespace {

template <class T>
std::byte* store(std::byte* to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
  return to + sizeof(T);
}

template <class T>
T load(const std::byte*& from) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<T>(std::to_integer<T>(from[i]) << (8 * i));
  from += sizeof(T);
  return value;
}

}  // namespace

FrameBytes encode(const Frame& frame) {
  FrameBytes bytes;
  std::byte* to = bytes.data();
  to = store(to, static_cast<std::uint32_t>(frame.type));
  to = store(to, frame.signal);
  to = store(to, frame.offset);
  to = store(to, frame.bytes);
  to = store(to, frame.value);
  store(to, frame.pieces);
  return bytes;
}

Frame decode(std::span<const std::byte, frame_bytes> bytes) {
  const std::byte* from = bytes.data();
  Frame frame;
  frame.type = static_cast<Frame::Type>(load<std::uint32_t>(from));
  frame.signal = load<std::uint32_t>(from);
  frame.offset = load<std::uint64_t>(from);
  frame.bytes = load<std::uint64_t>(from);
  frame.value = load<std::uint64_t>(from);
  frame.pieces = load<std::uint64_t>(from);
  return frame;
}

Status check(const Frame& frame, int stream, const Geometry& geometry, int peer) {
  const auto type = static_cast<std::uint32_t>(frame.type);
  if (type < static_cast<std::uint32_t>(Frame::Type::put) ||
      type > static_cast<std::uint32_t>(Frame::Type::bye))
    return peer_error(peer, "rank ", peer, " sent a frame of unknown type ", type);
  const bool has_bytes = frame.type == Frame::Type::put || frame.type == Frame::Type::piece;
  const bool may_signal = frame.type == Frame::Type::put || frame.type == Frame::Type::signal;
  if (stream != 0 && may_signal)
    return peer_error(peer, "rank ", peer, " sent a frame of type ", type, " on stream ", stream,
                      "; it must be on stream 0");
  if (has_bytes != (frame.bytes != 0))
    return peer_error(peer, "rank ", peer, " sent ", frame.bytes, " bytes with a frame of type ",
                      type, ", which must have ", has_bytes ? "at least 1" : "0");
  if (!has_bytes && frame.offset != 0)
    return peer_error(peer, "rank ", peer, " sent an offset with a frame of type ", type,
                      ", which carries no data");
  if (!may_signal && frame.pieces != 0)
    return peer_error(peer, "rank ", peer, " sent a count of pieces in a frame of type ", type,
                      ", which is not ordered with pieces");
  const bool is_in_region =
      frame.bytes <= geometry.region_bytes && frame.offset <= geometry.region_bytes - frame.bytes;
  // Of exposed memory the bounds are looked up where the bytes are placed.
  if (frame.memory() == 0 && !is_in_region)
    return peer_error(peer, "rank ", peer, " put ", frame.bytes, " bytes at offset ", frame.offset,
                      ", which exceeds the region of ", geometry.region_bytes, " bytes");
  if (frame.signal != Frame::no_signal &&
      (!may_signal || frame.signal >= static_cast<std::uint32_t>(geometry.signals)))
    return peer_error(peer, "rank ", peer, " set signal ", frame.signal, " in a frame of type ",
                      type, "; there are ", geometry.signals, " signals");
  if (frame.type == Frame::Type::signal && frame.signal == Frame::no_signal)
    return peer_error(peer, "rank ", peer, " sent a signal frame that names no signal");
  const bool may_have_value = frame.type == Frame::Type::fault || frame.type == Frame::Type::piece;
  if (frame.signal == Frame::no_signal && !may_have_value && frame.value != 0)
    return peer_error(peer, "rank ", peer, " sent the signal value ", frame.value,
                      " in a frame that names no signal");
  return {};
}

}  // namespace unisono::transport::socket
