// The accepting side of the handshakes: strangers are refused, peers wait for the local rank.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/log_limit.h"
#include "sys/accepting.h"
#include "transport/socket/pending_connection.h"
#include "transport/socket/poller.h"
#include "transport/socket/small_messages.h"
#include "transport/socket/wire_policy.h"

namespace unisono::transport::socket {

using PendingConnections = std::vector<std::shared_ptr<PendingConnection>>;

// Anybody can connect. Whoever has not proved the job's key costs a descriptor and one of these,
// allocated when it is accepted, and nothing for what it sends.
class Stranger {
 public:
  Stranger(sys::Socket socket, Poller& poller, std::int64_t now_ns)
      : messages(std::move(socket)), accepted_ns_(now_ns), poller_(poller) {}
  ~Stranger() {
    if (messages.socket()) poller_.remove(messages.socket(), readiness);
  }
  std::int64_t age_ns(std::int64_t now_ns) const { return now_ns - accepted_ns_; }
  // For one that has proved the key.
  SmallMessages take_messages() {
    poller_.remove(messages.socket(), readiness);
    return std::move(messages);
  }

  SmallMessages messages;
  Nonces nonces;
  Readiness readiness;
  bool has_greeted = false;

 private:
  std::int64_t accepted_ns_;
  Poller& poller_;
};

class Acceptor {
 public:
  Acceptor(std::vector<sys::Socket> listeners, const HandshakeKeys& keys, const WirePolicy& policy,
           Poller& poller, std::shared_ptr<const OpenEpochs> epochs)
      : listeners_(std::move(listeners)),
        keys_(keys),
        policy_(policy),
        poller_(poller),
        epochs_(std::move(epochs)) {}

  // Accepts what has come, moves handshakes on, and lets streams join all_pending that wait for
  // them.
  void progress(const PendingConnections& all_pending);
  bool under_way() const { return !strangers_.empty(); }

  // So many may try to prove the key at once, for so long. Then the oldest is turned away, so that
  // idle connections keep nobody out; a rank that was turned away tries again.
  static constexpr std::size_t max_strangers = 256;
  static constexpr std::int64_t stranger_seconds = 1;
  static constexpr std::size_t max_stranger_bytes = 256;

 private:
  // With the list's and the allocator's two words each.
  static_assert(sizeof(Stranger) + 4 * sizeof(void*) <= max_stranger_bytes);
  // Who has proved it waits until the local rank connects, too. Then the peer tries again.
  static constexpr std::size_t max_parked = 8192;
  static constexpr std::int64_t parked_seconds = 120;

  struct Parked {
    SmallMessages messages;
    Nonces nonces;
    Hello hello;
    std::int64_t deadline_ns;
  };
  // The streams of one attempt that have joined a pending so far.
  struct Gathering {
    std::shared_ptr<PendingConnection> pending;
    Nonce attempt;
    std::vector<JoinedStream> streams;
    std::size_t missing = 0;
  };

  void accept_new(const sys::Socket& listener, const PendingConnections& all_pending,
                  std::int64_t now);
  // This process has no descriptor for a connection that waits.
  void starve(const Error& why, const PendingConnections& all_pending, std::int64_t now);
  void drop_oldest(std::int64_t now);
  // True when it is done with: parked or refused.
  bool advance(Stranger& stranger, std::int64_t now);
  // Its Hello, once that is there and proven.
  Result<std::optional<Hello>> hear(Stranger& stranger);
  void park(Stranger& stranger, const Hello& hello, std::int64_t now);
  void join_parked(const PendingConnections& all_pending, std::int64_t now);
  // Asks for an epoch that is over.
  void refuse(Parked& parked, std::int64_t now);
  Status join(Parked& parked, const std::shared_ptr<PendingConnection>& pending);
  // Whether this connection waits for it. The peer's word decides what it asks for.
  static bool is_waited_for(const PendingConnection& pending, const Hello& hello);
  Result<JoinedStream> answer(Parked& parked, PendingConnection& pending);
  Status bring_back(Parked& parked, PendingConnection& pending);
  Gathering& gathering_of(const std::shared_ptr<PendingConnection>& pending, const Parked& parked);
  void log_refusal(const sys::Socket& socket, std::string_view why, std::int64_t now);

  std::vector<sys::Socket> listeners_;  // one for each rail
  const HandshakeKeys& keys_;
  WirePolicy policy_;
  Poller& poller_;
  const std::shared_ptr<const OpenEpochs> epochs_;  // null: none is over
  std::list<Stranger> strangers_;                   // the oldest first
  std::list<Parked> parked_;
  std::list<Gathering> gatherings_;
  LogLimit refusals_;
  std::int64_t next_look_at_parked_ns_ = 0;
  sys::Starvation starvation_;
};

}  // namespace unisono::transport::socket
