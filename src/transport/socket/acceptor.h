// The accepting side of the handshakes: strangers are refused, peers wait for the local rank.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "transport/socket/meeting.h"
#include "transport/socket/small_messages.h"

namespace unisono::transport::socket {

using Meetings = std::vector<std::shared_ptr<Meeting>>;

class Acceptor {
 public:
  Acceptor(std::vector<sys::Socket> listeners, std::string secret)
      : listeners_(std::move(listeners)), secret_(std::move(secret)) {}

  // Accepts what has come, moves handshakes on, and lets streams join meetings that wait for them.
  void progress(const Meetings& meetings);
  bool under_way() const { return !incoming_.empty(); }

 private:
  // Anybody can connect; so many may try to prove the secret at once, and for so long.
  static constexpr std::size_t max_incoming = 256;
  static constexpr std::int64_t incoming_seconds = 30;
  // Who has proved it waits until the local rank connects, too. Then the peer tries again.
  static constexpr std::size_t max_parked = 8192;
  static constexpr std::int64_t parked_seconds = 120;

  struct Incoming {
    SmallMessages messages;
    Nonce challenge;
    std::string from;
    std::int64_t deadline_ns;
  };
  struct Parked {
    SmallMessages messages;
    Nonce challenge;
    Hello hello;
    std::string from;
    std::int64_t deadline_ns;
  };
  // The streams of one attempt that have joined a meeting so far.
  struct Gathering {
    std::shared_ptr<Meeting> meeting;
    Nonce nonce;
    std::vector<sys::Socket> sockets;
    std::size_t missing = 0;
  };

  void accept_new(const sys::Socket& listener, std::int64_t now);
  Status greet(sys::Socket socket, std::int64_t now);
  // True when it is done with: parked or refused.
  bool advance(Incoming& incoming, std::int64_t now);
  void join_parked(const Meetings& meetings, std::int64_t now);
  void join(Parked& parked, const std::shared_ptr<Meeting>& meeting);
  Gathering& gathering_of(const std::shared_ptr<Meeting>& meeting, const Hello& hello);

  std::vector<sys::Socket> listeners_;  // one for each rail
  std::string secret_;
  std::list<Incoming> incoming_;
  std::list<Parked> parked_;
  std::list<Gathering> gatherings_;
  std::int64_t next_look_at_parked_ns_ = 0;
};

}  // namespace unisono::transport::socket
