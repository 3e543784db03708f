#include "transport/ofi/connection.h"

#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
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
// How long writes into exposed memory are waited for since the last one ended, and since then where
// the peer has died, so that what its host had sent is read.
constexpr std::int64_t most_idle_ns = ns_per_s;
constexpr std::int64_t last_bytes_ns = 100 * ns_per_ms;

class OfiConnection final : public Connection {
 public:
  OfiConnection(std::shared_ptr<Hub> hub, std::shared_ptr<End> end)
      : Connection(end->self, end->peer), hub_(std::move(hub)), end_(std::move(end)) {
    region_ = end_->region_memory.data();
    signals_ = end_->signals();
  }
  ~OfiConnection() override {
    std::unique_lock lock(hub_->mutex());
    end_->is_leaving = true;
    end_->landing.close(0);
    fence(lock, 0);
    hub_->close(end_);
  }

  Result<bool> ready() override;
  Result<bool> try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                       Signal signal) override;
  Result<RemoteMemory> expose(void* memory, std::size_t bytes) override;
  void withdraw(const RemoteMemory& memory) override;
  bool puts_in_place() const override { return true; }
  Result<bool> try_put_to(const RemoteMemory& memory, std::size_t offset, const void* source,
                          std::size_t bytes, Signal signal) override;
  bool can_get() const override { return true; }
  Result<bool> try_get(const RemoteMemory& memory, std::size_t offset, void* destination,
                       std::size_t bytes) override;
  std::uint64_t gets_started() const override {
    const std::lock_guard lock(hub_->mutex());
    return end_->gets.started();
  }
  std::uint64_t gets_completed() const override {
    const std::lock_guard lock(hub_->mutex());
    return end_->gets.completed();
  }
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
  bool still_writes() const;
  Status look_whether_it_lives();
  // Calls `add` until the outbox takes the put or what is under way has been pushed in vain.
  template <class Add>
  bool put(const Add& add);
  void fence(std::unique_lock<std::mutex>& lock, std::uint64_t memory);

  std::shared_ptr<Hub> hub_;
  std::shared_ptr<End> end_;
  std::uint64_t looks_ = 0;
  bool is_ready_ = false;  // and its user knows
  bool saw_peer_gone_ = false;
};

Status OfiConnection::state() const {
  if (end_->told_fault && !still_writes()) return told_error(peer_, *end_->told_fault);
  if (end_->fault != 0) return own_error(peer_, unpack(end_->fault));
  if (end_->error && (end_->error->kind != ErrorKind::peer || !end_->is_gone()))
    return Error(*end_->error);
  return {};
}

// Whoever told a fault waits for what is under way into its memory, so the fault is seen after
// that.
bool OfiConnection::still_writes() const {
  return end_->outbox.writes_in_place() && !end_->is_unreachable &&
         now_ns() - end_->told_ns < most_idle_ns;
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
  return put([&] {
    return end_->outbox.add(static_cast<const std::byte*>(source), bytes, peer_offset, signal);
  });
}

template <class Add>
bool OfiConnection::put(const Add& add) {
  if (end_->is_over()) {
    end_->outbox.add_dropped();
    return true;
  }
  bool taken = add();
  hub_->push(*end_);
  if (!taken) {
    taken = add();
    if (taken) hub_->push(*end_);
  }
  return taken;
}

Result<bool> OfiConnection::try_put_to(const RemoteMemory& memory, std::size_t offset,
                                       const void* source, std::size_t bytes, Signal signal) {
  const std::lock_guard lock(hub_->mutex());
  if (!is_ready_) return bug("put to rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_put_to(end_->geometry, peer_, memory, signal));
  const auto* from = static_cast<const std::byte*>(source);
  return put([&] {
    if (bytes == 0) return end_->outbox.add(from, 0, 0, signal);
    Note offer;
    const bool taken = end_->outbox.offer(memory, from, bytes, offset, signal,
                                          hub_->endpoint().most_write_bytes(), offer);
    if (taken) hub_->tell(*end_, MessageType::offer, offer);
    return taken;
  });
}

Result<bool> OfiConnection::try_get(const RemoteMemory& memory, std::size_t offset,
                                    void* destination, std::size_t bytes) {
  const std::lock_guard lock(hub_->mutex());
  if (!is_ready_) return bug("get from rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_get(peer_, memory));
  Gets& gets = end_->gets;
  if (end_->is_over()) {
    gets.add_dropped();
    return true;
  }
  if (bytes == 0) {
    gets.add_empty();
    return true;
  }
  if (!gets.has_room()) return false;
  UNISONO_ASSIGN(auto registered,
                 hub_->endpoint().share(static_cast<std::byte*>(destination), bytes));
  hub_->tell(*end_, MessageType::get,
             gets.add(std::move(registered), memory, offset, bytes, end_->inbox.in_place()));
  hub_->push(*end_);
  return true;
}

Result<RemoteMemory> OfiConnection::expose(void* memory, std::size_t bytes) {
  const std::lock_guard lock(hub_->mutex());
  UNISONO_TRY(state());
  UNISONO_TRY(check_host_memory("ofi", self_, peer_, memory, bytes));
  return end_->landing.expose(memory, bytes);
}

void OfiConnection::withdraw(const RemoteMemory& memory) {
  if (memory.key == 0) return;
  std::unique_lock lock(hub_->mutex());
  end_->landing.close(memory.key);
  const bool is_put_to = end_->is_due(memory.key);
  if ((is_put_to || end_->outbox.unposted_answers(memory.key) > 0) && !end_->error)
    hub_->refuse(*end_, withdrawn_under_way(is_put_to ? Access::put : Access::get, self_, peer_));
  fence(lock, memory.key);
}

// Returns when no byte lands any more in this exposed memory, or in any and in destinations of gets
// (0), and none of this memory is read. It is closed. The peer begins no more writes and tells how
// many it has begun; those arrive, unless it is stopped. This end's answers from there end, and all
// writes of an end that goes: its peer may wait for them, and their sources may then be freed.
void OfiConnection::fence(std::unique_lock<std::mutex>& lock, std::uint64_t memory) {
  const auto under_way = [&]() -> std::size_t {
    if (end_->is_unreachable) return 0;
    return memory == 0 ? end_->outbox.outstanding_with_bytes()
                       : end_->outbox.outstanding_of_answers(memory);
  };
  if (end_->is_due(memory)) {
    hub_->tell(*end_, MessageType::stop, {});
    hub_->push(*end_);
  }
  // An end that comes after one that gave up waits less, so that many stuck peers take hardly
  // longer than one: until then, its writes could move, too.
  const bool is_next = now_ns() - hub_->gave_up_ns() < most_idle_ns;
  // Arrivals and departures both count: one write may follow another at once.
  const auto count_moves = [&] {
    return end_->inbox.in_order() + end_->outbox.sequence() - under_way();
  };
  std::int64_t moved_ns = now_ns();
  std::uint64_t before = count_moves();
  while (end_->is_due(memory) || under_way() > 0) {
    const bool is_dead = end_->is_unreachable || (end_->is_watched && !end_->peer_watch.alive());
    const std::int64_t idle_ns = now_ns() - moved_ns;
    if (is_dead && idle_ns > last_bytes_ns) break;
    const bool has_last_try = is_next && memory == 0 && !end_->is_due(0);
    if (idle_ns > (has_last_try ? last_bytes_ns : most_idle_ns)) {
      if (end_->is_due(memory))
        log(LogLevel::error, "rank ", peer_, " stopped in the middle of writes to memory of rank ",
            self_, ", which is withdrawn or given up; nothing of them has come for ",
            idle_ns / ns_per_ms, " ms. The rest may still land");
      if (end_->outbox.outstanding_of_answers(memory) > 0) {
        log(LogLevel::error, "rank ", peer_, " stopped in the middle of a get from memory of rank ",
            self_, ", which is withdrawn; it has taken nothing of it for ", idle_ns / ns_per_ms,
            " ms. The rest may still be read");
        if (!end_->error) hub_->refuse(*end_, withdrawn_under_way(Access::get, self_, peer_));
      } else if (under_way() > 0) {
        log(LogLevel::error, "rank ", peer_, " takes no more of what rank ", self_,
            " was putting there when it gave up or left, for ", idle_ns / ns_per_ms,
            " ms. The sources may still be read");
      }
      hub_->give_up_at(now_ns());
      break;
    }
    hub_->progress();
    const std::uint64_t moves = count_moves();
    if (std::exchange(before, moves) != moves) moved_ns = now_ns();
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  end_->landing.forget(memory);
  if (memory == 0) end_->gets.forget();
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
  return peer_left(peer_);
}

Status OfiConnection::look_whether_it_lives() {
  if (end_->has_left || end_->error) return {};
  if (end_->is_watched && !end_->peer_watch.alive()) {
    end_->error = peer_error(peer_, "rank ", peer_, " failed: its process ",
                             end_->peer_facts->process.pid, " has ended");
    end_->is_unreachable = true;
    end_->outbox.abandon();
    return {};
  }
  if (end_->is_watched || end_->peer_facts->process == sys::this_process()) return {};
  const std::int64_t now = now_ns();
  if (end_->blocked_since_ns != 0 && now - end_->blocked_since_ns > most_blocked_ns &&
      end_->outbox.outstanding_writes() == 0) {
    end_->error = peer_error(peer_, "rank ", peer_, " failed: libfabric has not reached it for ",
                             (now - end_->blocked_since_ns) / ns_per_s, " s");
    end_->is_unreachable = true;
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
  std::unique_lock lock(hub_->mutex());
  if (end_->fault == 0) {
    end_->fault = pack(fault);
    end_->outbox.drop();
    hub_->tell(*end_, MessageType::fault,
               {.sequence = end_->outbox.sequence(), .value = end_->fault});
    hub_->push(*end_);
  }
  end_->landing.close(0);
  fence(lock, 0);
}

std::size_t OfiConnection::memory_bytes() const {
  const std::lock_guard lock(hub_->mutex());
  return sizeof *this + sizeof(End) + end_->outbox.memory_bytes() + end_->landing.memory_bytes() +
         end_->gets.memory_bytes() +
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
