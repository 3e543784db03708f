#include "chaos/own_connection.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/try.h"

namespace unisono::chaos {
namespace {

using transport::RemoteMemory;

// A rank tells the other where its memory is, and that it has got all that it wanted.
constexpr int exposed_signal = 0;
constexpr int done_signal = 1;
constexpr std::int64_t look_interval_ns = 1'000'000;
constexpr std::size_t parts = 3;

void sleep(sys::World& world) {
  // The network has one event for all of its connections.
  constexpr std::array events{0};
  world.sleep(look_interval_ns, events);
}

}  // namespace

Result<std::unique_ptr<OwnConnection>> OwnConnection::open(
    transport::Transport& network, const transport::ConnectionRequest& request) {
  UNISONO_ASSIGN(auto connection, network.connect(request));
  return std::unique_ptr<OwnConnection>(new OwnConnection(std::move(connection)));
}

OwnConnection::~OwnConnection() {
  if (!is_done_) connection_->abort({});
}

bool OwnConnection::is_told(int signal) const {
  // Acquire: what was put before the signal.
  return connection_->signals()[signal].load(std::memory_order_acquire) != 0;
}

Status GetRound::wait(OwnConnection& awaited, const std::function<Result<bool>()>& holds) {
  for (;;) {
    // The other one's gets are served meanwhile.
    UNISONO_TRY(ahead_->progress());
    UNISONO_TRY(behind_->progress());
    UNISONO_ASSIGN(const bool does, holds());
    if (does) return {};
    UNISONO_TRY(awaited->check_peer());
    if (gives_up_())
      return timeout_error(awaited->peer(), "rank ", awaited->peer(),
                           " does not take part in gets in time");
    sleep(world_);
  }
}

Status GetRound::get(std::span<std::byte> got) {
  RemoteMemory there;
  std::memcpy(&there, behind_->region(), sizeof there);
  const std::size_t part = std::max<std::size_t>(got.size() / parts, 1);
  for (std::size_t at = 0; at < got.size();) {
    const std::size_t bytes = std::min(part, got.size() - at);
    UNISONO_TRY(wait(behind_, [&] { return behind_->try_get(there, at, got.data() + at, bytes); }));
    at += bytes;
  }
  return wait(behind_, [&]() -> Result<bool> {
    return behind_->gets_completed() == behind_->gets_started();
  });
}

Status GetRound::run(std::span<std::byte> own, std::span<std::byte> got,
                     const std::function<void()>& look) {
  for (OwnConnection* const one : {&ahead_, &behind_})
    UNISONO_TRY(wait(*one, [&] { return (*one)->ready(); }));
  UNISONO_ASSIGN(const RemoteMemory mine, ahead_->expose(own.data(), own.size()));
  UNISONO_TRY(
      wait(ahead_, [&] { return ahead_->try_put(&mine, sizeof mine, 0, {exposed_signal, 1}); }));
  UNISONO_TRY(wait(behind_, [&]() -> Result<bool> { return behind_.is_told(exposed_signal); }));
  UNISONO_TRY(get(got));
  look();
  UNISONO_TRY(wait(behind_, [&] { return behind_->try_put(nullptr, 0, 0, {done_signal, 1}); }));
  UNISONO_TRY(wait(ahead_, [&]() -> Result<bool> { return ahead_.is_told(done_signal); }));
  ahead_->withdraw(mine);
  for (OwnConnection* const one : {&ahead_, &behind_}) one->is_done();
  return {};
}

Result<bool> is_refused(sys::World& world, OwnConnection& connection, std::int64_t until_ns) {
  while (world.now_ns() < until_ns) {
    auto ready = connection->ready();
    if (!ready.ok() && ready.error().reason == FailureReason::left) return true;
    if (!ready.ok()) return ready.take_error();
    if (*ready) return false;
    sleep(world);
  }
  return timeout_error(connection->peer(), "rank ", connection->peer(),
                       " neither takes nor refuses a connection");
}

}  // namespace unisono::chaos
