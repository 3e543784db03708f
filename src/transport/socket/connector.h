// The connecting side of the handshakes.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "transport/socket/pending_connection.h"
#include "transport/socket/small_messages.h"
#include "transport/socket/wire_policy.h"

namespace unisono::transport::socket {

class Connector {
 public:
  Connector(const HandshakeKeys& keys, const WirePolicy& policy, int streams)
      : keys_(keys), policy_(policy), streams_(streams) {}

  void begin(std::shared_ptr<PendingConnection> pending);
  void progress();

 private:
  // Attempts that reach nobody are further and further apart: 20 ms, 40 ms, ...; after the last,
  // some five seconds after the first, the peer counts as not reachable.
  static constexpr int max_tries = 9;
  static constexpr std::int64_t first_pause_ms = 20;
  // Where somebody listens but turns the attempt away, strangers may flood the listener: the next
  // attempt follows soon, at a time that differs among ranks, for so long.
  static constexpr std::int64_t shortest_pause_ms = 2;
  static constexpr std::int64_t rejected_seconds = 10;
  // An attempt that lived so long did reach the peer; the count starts again.
  static constexpr std::int64_t long_lived_seconds = 10;

  struct Outgoing {
    enum class Stage : std::uint8_t { connecting, greeting, waiting, joined };
    Stage stage = Stage::connecting;
    SmallMessages messages;
    Nonces nonces;
    Hello hello;
  };
  struct Attempt {
    std::shared_ptr<PendingConnection> pending;
    std::vector<Outgoing> streams;
    int tries = 0;
    std::int64_t started_ns = 0;
    std::int64_t first_rejected_ns = 0;  // 0: has not been
    std::int64_t starved_since_ns = 0;   // 0: there are descriptors
    std::int64_t next_try_ns = 0;
  };

  // True when the pending is over for the connector.
  bool advance(Attempt& attempt);
  Status start(Attempt& attempt);
  Status advance(Outgoing& stream, Attempt& attempt);
  Status take_reply(Outgoing& stream, PendingConnection& pending);
  void join(Attempt& attempt);
  bool retry_later(Attempt& attempt, const Error& why);

  const HandshakeKeys& keys_;
  WirePolicy policy_;
  int streams_;
  std::list<Attempt> attempts_;
};

}  // namespace unisono::transport::socket
