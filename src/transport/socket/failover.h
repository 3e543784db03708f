// How a connection over several rails goes on when one of its streams ends.
//
// Both ends stop reading that stream, close its socket and say on every other one how many frames
// they have of it; what a peer does not have then goes to others. All of that may be lost with
// another stream, so it is said of all again whenever one ends.
//
// When both have said so, the end that connects dials the stream's rail again until it answers.
// The stream that joins has the next generation. The end that accepts gives nothing to it before it
// has heard its peer there, who may not know yet that it has joined.
#pragma once

#include <unisono/result.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/socket/hub.h"
#include "transport/socket/inbox.h"
#include "transport/socket/outbox.h"
#include "transport/socket/pending_connection.h"
#include "transport/socket/silence.h"

namespace unisono::transport::socket {

class Failover {
 public:
  // All of these outlive it.
  Failover(Streams& streams, Inbox& inbox, Outbox& outbox,
           std::shared_ptr<PendingConnection> connection, Hub& hub);

  // Before each receive(): streams that are back.
  void take_back();
  // After each receive(). An end that has given up gives nothing again.
  Status progress(bool has_given_up);
  // The stream that was closed last, for an error's sentence.
  std::string last_lost() const;

 private:
  struct Watched {
    std::size_t rail = 0;
    std::uint32_t generation = 0;
    bool is_used = true;
    bool has_given_again = false;  // what was lost with it
    bool is_wanted = false;        // back
    std::string_view given_up;     // why this end gave it up; else empty
  };

  void watch_silence();
  // Whether one has ended, or was closed by a peer that had taken it back.
  bool close_lost();
  Status give_again(std::size_t stream, std::uint64_t came);
  void install(std::size_t stream, JoinedStream joined);
  void use(std::size_t stream);
  void close(std::size_t stream);
  void tell(std::size_t closed);
  std::string describe(std::size_t stream) const;
  std::size_t rail_of(const Stream& stream) const;

  Streams& streams_;
  Inbox& inbox_;
  Outbox& outbox_;
  std::shared_ptr<PendingConnection> connection_;
  Hub& hub_;
  std::vector<Watched> watched_;  // the streams
  Silence silence_;
  std::optional<std::size_t> last_closed_;
};

}  // namespace unisono::transport::socket
