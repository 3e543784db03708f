#include "transport/socket/close_handshake.h"

#include "transport/clock.h"

namespace unisono::transport::socket {

void CloseHandshake::add(Streams streams) {
  const std::int64_t deadline = now_ns() + patience_seconds * ns_per_s;
  for (auto& stream : streams)
    leaving_.push_back({.stream = std::move(stream), .deadline_ns = deadline});
}

void CloseHandshake::progress() {
  const std::int64_t now = now_ns();
  leaving_.remove_if([&](Leaving& leaving) { return done(leaving, now); });
}

bool CloseHandshake::done(Leaving& leaving, std::int64_t now) {
  Stream& stream = *leaving.stream;
  stream.send(*this);
  if (stream.broken() || now >= leaving.deadline_ns) return true;
  if (sys::discard_received(stream.socket())) return true;
  if (!stream.nothing_waits()) return false;
  if (!leaving.ended_sending) {
    sys::end_sending(stream.socket());
    leaving.ended_sending = true;
  }
  return sys::unacknowledged_bytes(stream.socket()) == 0;
}

}  // namespace unisono::transport::socket
