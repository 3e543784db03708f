#include "transport/socket/close_handshake.h"

#include <utility>

#include "base/str.h"
#include "transport/clock.h"

namespace unisono::transport::socket {

void CloseHandshake::add(Streams streams, Ends ends, std::int64_t patience_ns) {
  const std::int64_t deadline = now_ns() + patience_ns;
  for (auto& stream : streams) {
    stream->unwatch();
    leaving_.push_back({.stream = std::move(stream), .ends = ends, .deadline_ns = deadline});
  }
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

std::string CloseHandshake::describe() const {
  std::string all;
  for (const Leaving& leaving : leaving_)
    all += str(all.empty() ? "" : ", ", "rank ", leaving.ends.peer, " to take the last ",
               leaving.stream->unsent_bytes() +
                   sys::unacknowledged_bytes(leaving.stream->socket()).value_or(0),
               " bytes of rank ", leaving.ends.self);
  return all;
}

}  // namespace unisono::transport::socket
