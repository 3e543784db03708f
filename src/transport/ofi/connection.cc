#include "transport/ofi/connection.h"

#include "base/error.h"
#include "base/try.h"
#include "transport/clock.h"
#include "transport/fault.h"
#include "transport/request.h"

namespace unisono::transport::ofi {
namespace {

// A peer whose process cannot be watched is sent a message now and then, so that libfabric notices
// that nobody is there.
constexpr std::int64_t ping_interval_ns = 200 * ns_per_ms;
// A message that libfabric does not take for so long, though nothing else is under way, finds
// nobody.
constexpr std::int64_t most_blocked_ns = 5 * ns_per_s;
constexpr std::int64_t unanswered_ns = ns_per_s;

class OfiConnection final : public Connection {
 public:
  OfiConnection(std::shared_ptr<Hub> hub, std::shared_ptr<End> end)
      : Connection(end->self, end->peer), hub_(std::move(hub)), end_(std::move(end)) {
    region_ = end_->region_memory.data();
    signals_ = end_->signals();
  }
  ~OfiConnection() override {
    const std::lock_guard lock(hub_->mutex());
    hub_->close(end_);
  }

  Result<bool> ready() override;
  Result<bool> try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                       Signal signal) override;
  std::uint64_t puts_started() const override {
    const std::lock_guard lock(hub_->mutex());
    return end_->outbox.started();
  }
  std::uint64_t puts_completed() const override {
    const std::lock_guard lock(hub_->mutex());
    return end_->outbox.completed();
  }
  bool can_read_peer() const override { return false; }
  Status read_peer(void*, std::uint64_t, std::size_t) override {
    return bug("the memory of rank ", peer_, " cannot be read over libfabric");
  }
  Status progress() override;
  Status check_peer() override;
  bool is_unanswered() override;
  void abort(Fault fault) override;
  std::size_t memory_bytes() const override;

 private:
  Status state() const;
  Status look_whether_it_lives();

  std::shared_ptr<Hub> hub_;
  std::shared_ptr<End> end_;
  std::uint64_t looks_ = 0;
  bool is_ready_ = false;  // and its user knows
  bool saw_peer_gone_ = false;
};

Status OfiConnection::state() const {
  if (end_->told_fault) return told_error(peer_, *end_->told_fault);
  if (end_->fault != 0) return own_error(peer_, unpack(end_->fault));
  if (end_->error && (end_->error->kind != ErrorKind::peer || !end_->is_gone()))
    return Error(*end_->error);
  return {};
}

Result<bool> OfiConnection::ready() {
  const std::lock_guard lock(hub_->mutex());
  if (!end_->is_joined()) hub_->progress_in_turn(looks_);
  UNISONO_TRY(state());
  is_ready_ = end_->is_joined();
  return is_ready_;
}

Result<bool> OfiConnection::try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                                    Signal signal) {
  const std::lock_guard lock(hub_->mutex());
  if (!is_ready_) return bug("put to rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_put(end_->geometry, peer_, bytes, peer_offset, signal));
  if (end_->is_over()) {
    end_->outbox.add_dropped();
    return true;
  }
  const auto* from = static_cast<const std::byte*>(source);
  bool taken = end_->outbox.add(from, bytes, peer_offset, signal);
  hub_->push(*end_);
  if (!taken) {
    taken = end_->outbox.add(from, bytes, peer_offset, signal);
    if (taken) hub_->push(*end_);
  }
  return taken;
}

Status OfiConnection::progress() {
  const std::lock_guard lock(hub_->mutex());
  hub_->progress_in_turn(looks_);
  // Of writes to a process that has ended some providers tell nothing.
  if (end_->has_left && end_->outbox.outstanding() > 0 && end_->is_watched &&
      !end_->peer_watch.alive())
    end_->outbox.abandon();
  return state();
}

Status OfiConnection::check_peer() {
  UNISONO_TRY(progress());
  const std::lock_guard lock(hub_->mutex());
  if (!is_ready_) return {};
  UNISONO_TRY(look_whether_it_lives());
  if (!end_->is_gone() && !end_->error) return {};
  if (!saw_peer_gone_) {
    saw_peer_gone_ = true;
    return {};
  }
  if (end_->error) return Error(*end_->error);
  return peer_error(peer_, "rank ", peer_,
                    " left the communicator while this rank still waits for it");
}

Status OfiConnection::look_whether_it_lives() {
  if (end_->has_left || end_->error) return {};
  if (end_->is_watched && !end_->peer_watch.alive()) {
    end_->error = peer_error(peer_, "rank ", peer_, " failed: its process ",
                             end_->peer_facts->process.pid, " has ended");
    end_->outbox.abandon();
    return {};
  }
  if (end_->is_watched || end_->peer_facts->process == sys::this_process()) return {};
  const std::int64_t now = now_ns();
  if (end_->blocked_since_ns != 0 && now - end_->blocked_since_ns > most_blocked_ns &&
      end_->outbox.outstanding() == 0) {
    end_->error = peer_error(peer_, "rank ", peer_, " failed: libfabric has not reached it for ",
                             (now - end_->blocked_since_ns) / ns_per_s, " s");
    end_->outbox.drop();
    return {};
  }
  if (end_->messages.empty() && now - end_->pinged_ns > ping_interval_ns) {
    end_->pinged_ns = now;
    hub_->tell(*end_, MessageType::ping, {});
    hub_->push(*end_);
  }
  return {};
}

bool OfiConnection::is_unanswered() {
  const std::lock_guard lock(hub_->mutex());
  return end_->blocked_since_ns != 0 && now_ns() - end_->blocked_since_ns > unanswered_ns;
}

void OfiConnection::abort(Fault fault) {
  if (fault.kind == Fault::Kind::none) fault = {.kind = Fault::Kind::aborted, .rank = self_};
  const std::lock_guard lock(hub_->mutex());
  if (end_->fault != 0) return;
  end_->fault = pack(fault);
  end_->outbox.drop();
  hub_->tell(*end_, MessageType::fault, {.value = end_->fault});
  hub_->push(*end_);
}

std::size_t OfiConnection::memory_bytes() const {
  const std::lock_guard lock(hub_->mutex());
  return sizeof *this + sizeof(End) + end_->outbox.memory_bytes() +
         sys::resident_bytes(end_->region_memory.data(), end_->region_memory.bytes()) +
         sys::resident_bytes(end_->signals_memory.data(), end_->signals_memory.bytes());
}

}  // namespace

Result<std::unique_ptr<Connection>> make_connection(std::shared_ptr<Hub> hub,
                                                    const ConnectionRequest& request) {
  std::shared_ptr<End> end;
  {
    const std::lock_guard lock(hub->mutex());
    UNISONO_ASSIGN(end, hub->open(request));
  }
  return std::unique_ptr<Connection>(
      std::make_unique<OfiConnection>(std::move(hub), std::move(end)));
}

}  // namespace unisono::transport::ofi
