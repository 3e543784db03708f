// What the socket connections of one transport share: the listener, the handshakes under way, the
// poller, and the streams that are on their way out.
#pragma once

#include <unisono/result.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "transport/socket/acceptor.h"
#include "transport/socket/close_handshake.h"
#include "transport/socket/connector.h"
#include "transport/socket/poller.h"
#include "transport/socket/rails.h"

namespace unisono::transport::socket {

class Hub {
 public:
  static Result<std::shared_ptr<Hub>> make(const TransportOptions& options);
  Hub(std::unique_ptr<Poller> poller, Rails rails, const TransportOptions& options, int streams);
  ~Hub();

  const std::string& address() const { return address_; }
  std::size_t rails() const { return rails_; }
  Poller& poller() { return *poller_; }
  // Whether this is the first stream of the transport that is lost on this rail.
  bool is_first_lost(std::size_t rail) { return !has_lost_[rail].exchange(true); }
  // Whether this is the first one that is back since then.
  bool is_first_back(std::size_t rail) { return has_lost_[rail].exchange(false); }
  void progress();

  Result<std::shared_ptr<PendingConnection>> open(const ConnectionRequest& request);
  // Both ends have closed this stream of a connection, which wants it back on its rail.
  void want_back(const std::shared_ptr<PendingConnection>& pending, std::size_t stream,
                 std::uint32_t generation, std::size_t rail);
  void want_nothing(PendingConnection& pending);
  // What there is of it; its socket once.
  ReturningStream take_back(PendingConnection& pending, std::size_t stream);
  // Afterwards the pending does not change any more.
  void leave(const std::shared_ptr<PendingConnection>& pending);
  // Of a connection that is no more; one that has failed has only that to tell.
  void see_off(Streams streams, CloseHandshake::Ends ends, bool has_failed);

 private:
  void progress_locked();
  bool under_way() const;

  std::unique_ptr<Poller> poller_;
  HandshakeKeys keys_;
  std::string address_;
  std::size_t rails_;
  std::mutex mutex_;
  Acceptor acceptor_;
  Connector connector_;
  CloseHandshake close_handshake_;
  std::int64_t close_late_from_ns_ = 0;
  PendingConnections pending_;
  std::array<std::atomic<bool>, max_rails> has_lost_{};
  std::atomic<bool> busy_{true};
  std::atomic<std::int64_t> last_progress_ns_{0};
};

}  // namespace unisono::transport::socket
