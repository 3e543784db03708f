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

Status check(const Frame& frame, int stream, Numbers numbers, const Geometry& geometry, int peer) {
  using Type = Frame::Type;
  const bool all_have_numbers = numbers == Numbers::of_all;
  const auto type = static_cast<std::uint32_t>(frame.type);
  if (type < static_cast<std::uint32_t>(Type::put) ||
      type > static_cast<std::uint32_t>(all_have_numbers ? Type::closed : Type::whole))
    return peer_error(peer, "rank ", peer, " sent a frame of unknown type ", type);
  const bool is_get = frame.type == Type::get;
  const bool has_bytes =
      frame.type == Type::put || frame.type == Type::piece || frame.type == Type::answer;
  const bool may_signal = frame.type == Type::put || frame.type == Type::signal;
  const bool counts = frame.type == Type::acknowledge || frame.type == Type::closed ||
                      (frame.type == Type::bye && all_have_numbers);
  if (stream != 0 && (may_signal || is_get) && !all_have_numbers)
    return peer_error(peer, "rank ", peer, " sent a frame of type ", type, " on stream ", stream,
                      "; it must be on stream 0");
  if (has_bytes != (frame.bytes != 0))
    return peer_error(peer, "rank ", peer, " sent ", frame.bytes, " bytes with a frame of type ",
                      type, ", which must have ", has_bytes ? "at least 1" : "0");
  if (is_get && frame.pieces == 0)
    return peer_error(peer, "rank ", peer, " asked to get 0 bytes; it must be at least 1");
  if (!has_bytes && !is_get && frame.type != Type::closed && frame.offset != 0)
    return peer_error(peer, "rank ", peer, " sent an offset with a frame of type ", type,
                      ", which carries no data");
  if (!may_signal && !is_get && !has_bytes && !counts && frame.pieces != 0)
    return peer_error(peer, "rank ", peer, " sent a count of pieces in a frame of type ", type,
                      ", which is not ordered with pieces");
  // Of other memory the bounds are looked up where the bytes are placed.
  if (frame.is_in_region() &&
      (frame.bytes > geometry.region_bytes || frame.offset > geometry.region_bytes - frame.bytes))
    return peer_error(peer, "rank ", peer, " put ", frame.bytes, " bytes at offset ", frame.offset,
                      ", which exceeds the region of ", geometry.region_bytes, " bytes");
  const bool is_number = is_get && all_have_numbers;
  if (frame.signal != Frame::no_signal && !is_number &&
      (!may_signal || frame.signal >= static_cast<std::uint32_t>(geometry.signals)))
    return peer_error(peer, "rank ", peer, " set signal ", frame.signal, " in a frame of type ",
                      type, "; there are ", geometry.signals, " signals");
  if (frame.type == Type::signal && frame.signal == Frame::no_signal)
    return peer_error(peer, "rank ", peer, " sent a signal frame that names no signal");
  const bool needs_signal_for_value = may_signal || frame.type == Type::bye ||
                                      frame.type == Type::whole || frame.type == Type::acknowledge;
  if (frame.signal == Frame::no_signal && needs_signal_for_value && frame.value != 0)
    return peer_error(peer, "rank ", peer, " sent the signal value ", frame.value,
                      " in a frame that names no signal");
  return {};
}

}  // namespace unisono::transport::socket
