// The connecting side of the handshakes.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "sys/world.h"
#include "transport/socket/pending_connection.h"
#include "transport/socket/small_messages.h"
#include "transport/socket/wire_policy.h"

namespace unisono::transport::socket {

class Connector {
 public:
  Connector(const HandshakeKeys& keys, const WirePolicy& policy, int streams)
      : keys_(keys), policy_(policy), streams_(streams) {}

  void begin(std::shared_ptr<PendingConnection> pending);
  // Makes a stream again that was lost, on its rail, for as long as it is wanted.
  void bring_back(std::shared_ptr<PendingConnection> pending, int stream, std::size_t rail);
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
  // A rail is waited for so long where another one has connected.
  static constexpr std::int64_t slow_rail_ms = 2000;
  // An attempt that lived so long did reach the peer; the count starts again.
  static constexpr std::int64_t long_lived_seconds = 10;
  // A rail that was lost is tried after 100 ms, 200 ms, ..., and then again and again after this
  // time. An attempt may take slow_rail_ms.
  static constexpr std::int64_t first_return_pause_ms = 100;
  static constexpr std::int64_t longest_return_pause_ms = 1000;

  struct Outgoing {
    enum class Stage : std::uint8_t { connecting, greeting, waiting, joined };
    Stage stage = Stage::connecting;
    std::size_t rail = 0;
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
    // Rails that did not connect: streams take the others. Never all.
    std::vector<bool> unreachable;
  };

  struct Return {
    std::shared_ptr<PendingConnection> pending;
    int stream;
    std::uint32_t generation;
    std::size_t rail;
    std::optional<Outgoing> outgoing;
    std::int64_t started_ns = 0;
    std::int64_t next_try_ns = 0;
    std::int64_t pause_ms = first_return_pause_ms;
  };

  // True when the pending is over for the connector.
  bool advance(Attempt& attempt);
  Status start(Attempt& attempt);
  Status take_reply(Outgoing& stream, PendingConnection& pending);
  void join(Attempt& attempt);
  // True when the stream has come back, or is not wanted any more.
  bool advance(Return& back);
  Result<bool> try_again(Return& back, std::int64_t now);
  static Result<Outgoing> dial(const sys::Address& address, std::size_t rail, const Nonce& nonce,
                               const Hello& hello);
  // Nothing while there is no reply.
  Result<std::optional<Reply>> advance(Outgoing& stream);
  JoinedStream joined(Outgoing& stream) const;
  Hello hello_of(const PendingConnection& pending, int stream, std::uint32_t generation) const;
  bool retry_later(Attempt& attempt, const Error& why);
  // Whether one is not waited for any more; the next attempt avoids it.
  static bool has_slow_rail(Attempt& attempt);
  static void avoid(Attempt& attempt, std::size_t rail);

  const HandshakeKeys& keys_;
  WirePolicy policy_;
  int streams_;
  std::list<Attempt> attempts_;
  std::list<Return> returns_;
};

}  // namespace unisono::transport::socket
