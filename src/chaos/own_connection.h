// A connection that a rank of chaos makes for itself, beside those of its communicators.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "sys/world.h"
#include "transport/transport.h"

namespace unisono::chaos {

class OwnConnection {
 public:
  static Result<std::unique_ptr<OwnConnection>> open(transport::Transport& network,
                                                     const transport::ConnectionRequest& request);
  // Unless is_done() was called, it gives up: its memory is exposed no more, nothing arrives later.
  ~OwnConnection();
  OwnConnection(const OwnConnection&) = delete;
  OwnConnection& operator=(const OwnConnection&) = delete;

  transport::Connection& operator*() const { return *connection_; }
  transport::Connection* operator->() const { return connection_.get(); }
  // Whether the peer has stored to the signal.
  bool is_told(int signal) const;
  // Nothing is under way any more.
  void is_done() { is_done_ = true; }

 private:
  explicit OwnConnection(std::unique_ptr<transport::Connection> connection)
      : connection_(std::move(connection)) {}

  std::unique_ptr<transport::Connection> connection_;
  bool is_done_ = false;
};

// Lets a rank get from the memory of the one behind it, while the one ahead gets from its own. The
// two may be one rank, and then one connection.
class GetRound {
 public:
  static constexpr transport::Geometry geometry{.region_bytes = sizeof(transport::RemoteMemory),
                                                .signals = 2};
  // `gives_up` tells whether it has taken too long.
  GetRound(sys::World& world, OwnConnection& ahead, OwnConnection& behind,
           std::function<bool()> gives_up)
      : world_(world), ahead_(ahead), behind_(behind), gives_up_(std::move(gives_up)) {}

  // Exposes `own`, and returns once `got` is complete and the one ahead needs `own` no more. `look`
  // is called as soon as the gets are complete.
  Status run(std::span<std::byte> own, std::span<std::byte> got, const std::function<void()>& look);

 private:
  Status wait(OwnConnection& awaited, const std::function<Result<bool>()>& holds);
  Status get(std::span<std::byte> got);

  sys::World& world_;
  OwnConnection& ahead_;
  OwnConnection& behind_;
  const std::function<bool()> gives_up_;
};

// Whether a peer refuses the connection, because its epoch is over there. A timeout if it says
// nothing, an error if it cannot be asked.
Result<bool> is_refused(sys::World& world, OwnConnection& connection, std::int64_t until_ns);

}  // namespace unisono::chaos
