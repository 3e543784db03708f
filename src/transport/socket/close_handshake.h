// Streams of connections that are no more, until the peer's kernel has all that was sent on them.
#pragma once

#include <cstdint>
#include <list>

#include "transport/socket/outbox.h"

namespace unisono::transport::socket {

// Closing a socket that has unread bytes resets it, and then the peer may lose what it has not
// received yet. So what is left is sent, and the socket closed when that is acknowledged.
class CloseHandshake final : public SentFrames {
 public:
  void add(Streams streams);
  void progress();
  bool empty() const { return leaving_.empty(); }

 private:
  static constexpr std::int64_t patience_seconds = 10;

  struct Leaving {
    std::unique_ptr<Stream> stream;
    std::int64_t deadline_ns;
    bool ended_sending = false;
  };

  bool done(Leaving& leaving, std::int64_t now);
  void frame_sent(std::uint64_t) override {}

  std::list<Leaving> leaving_;
};

}  // namespace unisono::transport::socket
