// Streams of connections that are no more, until the peer's kernel has all that was sent on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>

#include "transport/socket/outbox.h"

namespace unisono::transport::socket {

// Closing a socket resets it where bytes are unread, or where more come later; and a peer that is
// late loses with a reset what it has not received yet. So what is left is sent, and the socket
// closed when that is acknowledged.
class CloseHandshake final : public SentFrames {
 public:
  struct Ends {
    int self = -1;
    int peer = -1;
  };

  // For at most `patience_ns` from now on.
  void add(Streams streams, Ends ends, std::int64_t patience_ns);
  void add(CloseHandshake& other) { leaving_.splice(leaving_.end(), other.leaving_); }
  void progress();
  bool empty() const { return leaving_.empty(); }
  // Whom it waits for, in words.
  std::string describe() const;

 private:
  struct Leaving {
    std::unique_ptr<Stream> stream;
    Ends ends;
    std::int64_t deadline_ns;
    bool ended_sending = false;
  };

  bool done(Leaving& leaving, std::int64_t now);
  void frame_sent(std::uint64_t) override {}

  std::list<Leaving> leaving_;
};

}  // namespace unisono::transport::socket
