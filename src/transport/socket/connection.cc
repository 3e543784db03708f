#include "transport/socket/connection.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/try.h"
#include "sys/shared_memory.h"
#include "transport/fault.h"
#include "transport/request.h"
#include "transport/socket/failover.h"
#include "transport/socket/inbox.h"
#include "transport/socket/outbox.h"

namespace unisono::transport::socket {
namespace {

class SocketConnection final : public Connection {
 public:
  SocketConnection(std::shared_ptr<Hub> hub, std::shared_ptr<PendingConnection> pending,
                   sys::PrivateMemory region, sys::PrivateMemory signals)
      : Connection(pending->self, pending->peer),
        hub_(std::move(hub)),
        pending_(std::move(pending)),
        geometry_(pending_->geometry),
        exposed_(self_, peer_),
        gets_(peer_),
        region_memory_(std::move(region)),
        signals_memory_(std::move(signals)) {
    region_ = region_memory_.data();
    signals_ = reinterpret_cast<std::atomic<std::uint64_t>*>(signals_memory_.data());
  }
  ~SocketConnection() override;

  Result<bool> ready() override;
  Result<bool> try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                       Signal signal) override;
  Result<RemoteMemory> expose(void* memory, std::size_t bytes) override;
  void withdraw(const RemoteMemory& memory) override;
  bool puts_in_place() const override { return true; }
  Result<bool> try_put_to(const RemoteMemory& memory, std::size_t offset, const void* source,
                          std::size_t bytes, Signal signal) override;
  std::uint64_t puts_started() const override {
    const std::lock_guard lock(mutex_);
    return outbox_ ? outbox_->started() : 0;
  }
  std::uint64_t puts_completed() const override {
    const std::lock_guard lock(mutex_);
    return outbox_ ? outbox_->completed() : 0;
  }
  bool can_get() const override { return true; }
  Result<bool> try_get(const RemoteMemory& memory, std::size_t offset, void* destination,
                       std::size_t bytes) override;
  std::uint64_t gets_started() const override {
    const std::lock_guard lock(mutex_);
    return gets_.started();
  }
  std::uint64_t gets_completed() const override {
    const std::lock_guard lock(mutex_);
    return gets_.completed();
  }
  bool can_read_peer() const override { return false; }
  Status read_peer(void*, std::uint64_t, std::size_t) override {
    return bug("the memory of rank ", peer_, " cannot be read over a socket");
  }
  Status progress() override {
    hub_->poller().poll();
    return progress_known();
  }
  Status progress_known() override;
  Status check_peer() override;
  bool is_unanswered() override;
  void abort(Fault fault) override;
  std::size_t memory_bytes() const override;

 private:
  Status adopt();
  bool put(const std::byte* source, std::size_t bytes, std::size_t offset, Signal signal,
           std::uint64_t memory);
  Status answer_gets();
  Status state() const;
  Status violated(std::unique_ptr<Error> error);
  void tell_fault();
  void say_on_each_stream(const Frame& frame);
  bool gone() const { return inbox_ && inbox_->over(); }

  std::shared_ptr<Hub> hub_;
  std::shared_ptr<PendingConnection> pending_;
  Geometry geometry_;
  ExposedMemory exposed_;  // under the mutex, as gets_
  Gets gets_;
  sys::PrivateMemory region_memory_;
  sys::PrivateMemory signals_memory_;

  // abort() comes from any thread; everything below is its business, too.
  mutable std::mutex mutex_;
  Streams streams_;
  std::optional<Outbox> outbox_;  // both from when the connection is ready
  std::optional<Inbox> inbox_;
  std::optional<Failover> failover_;  // over several rails
  std::uint64_t fault_ = 0;           // ours, packed
  std::optional<Error> violation_;
  // Not once this end has given up while bytes for exposed memory were under way: their memory may
  // be gone.
  bool receives_ = true;
  bool saw_peer_gone_ = false;
};

SocketConnection::~SocketConnection() {
  hub_->leave(pending_);
  const std::lock_guard lock(mutex_);
  // The peer may have joined a connection that was never looked at again here.
  const bool joined =
      pending_->state.load(std::memory_order_acquire) == PendingConnection::State::joined;
  if (!outbox_ && (!joined || !adopt().ok())) return;
  if (fault_ == 0) {
    outbox_->drop();
    say_on_each_stream({.type = Frame::Type::bye, .pieces = outbox_->next_number()});
  }
  outbox_->send();
  failover_.reset();
  inbox_.reset();
  outbox_.reset();
  std::erase_if(streams_, [](const auto& stream) { return stream->is_closed(); });
  hub_->see_off(std::move(streams_), {.self = self_, .peer = peer_}, fault_ != 0 || violation_);
}

Result<bool> SocketConnection::ready() {
  const std::lock_guard lock(mutex_);
  UNISONO_TRY(state());
  if (outbox_) return true;
  switch (pending_->state.load(std::memory_order_acquire)) {
    case PendingConnection::State::waiting:
      return false;
    case PendingConnection::State::failed:
      return Error(pending_->error);
    case PendingConnection::State::joined:
      break;
  }
  UNISONO_TRY(adopt());
  return true;
}

Status SocketConnection::adopt() {
  for (JoinedStream& joined : pending_->streams) {
    streams_.push_back(std::make_unique<Stream>(std::move(joined.socket), hub_->poller()));
    UNISONO_TRY(streams_.back()->seal(joined));
    UNISONO_TRY(streams_.back()->watch());
    erase(joined.send_key);
    erase(joined.receive_key);
  }
  inbox_.emplace(streams_, region_, exposed_, gets_, signals_, geometry_, peer_, pending_->ranks,
                 Outbox::numbers_of(hub_->rails()));
  outbox_.emplace(streams_, geometry_.signals, hub_->rails());
  if (hub_->rails() > 1) failover_.emplace(streams_, *inbox_, *outbox_, pending_, *hub_);
  if (fault_ != 0) tell_fault();
  return {};
}

Result<bool> SocketConnection::try_put(const void* source, std::size_t bytes,
                                       std::size_t peer_offset, Signal signal) {
  const std::lock_guard lock(mutex_);
  if (!outbox_) return bug("put to rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_put(geometry_, peer_, bytes, peer_offset, signal));
  return put(static_cast<const std::byte*>(source), bytes, peer_offset, signal, 0);
}

Result<bool> SocketConnection::try_put_to(const RemoteMemory& memory, std::size_t offset,
                                          const void* source, std::size_t bytes, Signal signal) {
  const std::lock_guard lock(mutex_);
  if (!outbox_) return bug("put to rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_put_to(geometry_, peer_, memory, signal));
  return put(static_cast<const std::byte*>(source), bytes, offset, signal, memory.key);
}

bool SocketConnection::put(const std::byte* source, std::size_t bytes, std::size_t offset,
                           Signal signal, std::uint64_t memory) {
  if (fault_ != 0 || violation_ || gone()) {
    outbox_->add_dropped();
    return true;
  }
  bool taken = outbox_->add(source, bytes, offset, signal, memory);
  // Bytes without a signal leave with the next one, in one system call, or in progress().
  if (taken && signal.index < 0) return true;
  outbox_->send();
  if (!taken) {
    taken = outbox_->add(source, bytes, offset, signal, memory);
    if (taken && signal.index >= 0) outbox_->send();
  }
  return taken;
}

Result<bool> SocketConnection::try_get(const RemoteMemory& memory, std::size_t offset,
                                       void* destination, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!outbox_) return bug("get from rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_get(peer_, memory));
  if (fault_ != 0 || violation_ || gone()) {
    gets_.add_dropped();
    return true;
  }
  if (bytes > 0) {
    if (!gets_.has_room() || !outbox_->add_get(memory.key, offset, bytes)) return false;
  }
  gets_.add(static_cast<std::byte*>(destination), bytes);
  outbox_->send();
  return true;
}

// As many at a time as a peer may have under way; others wait for room.
Status SocketConnection::answer_gets() {
  std::uint64_t waiting = outbox_->answers_from(0);
  for (const auto& asked = gets_.asked(); !asked.empty() && waiting < Gets::most; ++waiting) {
    const std::uint64_t number = asked.begin();
    const Frame& get = asked[number];
    UNISONO_ASSIGN(const std::byte* source,
                   exposed_.place(Access::get, get.value, get.offset, get.pieces));
    outbox_->add_answer(number, source, static_cast<std::size_t>(get.pieces), get.value);
    gets_.answered();
  }
  return {};
}

Result<RemoteMemory> SocketConnection::expose(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  UNISONO_TRY(state());
  UNISONO_TRY(check_host_memory("socket", self_, peer_, memory, bytes));
  if (!exposed_.has_keys()) exposed_.start_keys_at_random();
  return exposed_.add(memory, bytes);
}

// All that is received and sent is so under the mutex, so that nothing lands or is read once this
// has it, but for the rest of a payload that has begun and answers that wait.
void SocketConnection::withdraw(const RemoteMemory& memory) {
  const std::lock_guard lock(mutex_);
  exposed_.remove(memory.key);
  if (memory.key == 0 || !inbox_ || violation_ || fault_ != 0) return;
  if (inbox_->receives_into(memory.key))
    (void)violated(std::make_unique<Error>(withdrawn_under_way(Access::put, self_, peer_)));
  else if (outbox_->answers_from(memory.key) > 0)
    (void)violated(std::make_unique<Error>(withdrawn_under_way(Access::get, self_, peer_)));
  else
    outbox_->withdraw(memory.key);
}

Status SocketConnection::state() const {
  if (inbox_ && inbox_->fault()) return told_error(peer_, *inbox_->fault());
  if (fault_ != 0) return own_error(peer_, unpack(fault_));
  if (violation_) return Error(*violation_);
  return {};
}

Status SocketConnection::progress_known() {
  const std::lock_guard lock(mutex_);
  if (outbox_) {
    if (!violation_ && receives_) {
      if (failover_ && fault_ == 0) failover_->take_back();
      auto received = inbox_->receive();
      if (received.ok() && failover_) received = failover_->progress(fault_ != 0);
      if (received.ok() && fault_ == 0 && !gets_.asked().empty()) received = answer_gets();
      if (!received.ok()) {
        // What this end has given up, its peer may still put into.
        receives_ = fault_ == 0;
        if (receives_) return violated(received.take_error());
      }
    }
    outbox_->send();
    if (outbox_->is_withdrawn() && !violation_)
      return violated(std::make_unique<Error>(withdrawn_under_way(Access::get, self_, peer_)));
    if (std::ranges::any_of(streams_, [](const auto& stream) { return stream->is_unreadable(); }))
      return violated(std::make_unique<Error>(
          misuse("memory of this rank that is sent to rank ", peer_,
                 " was unmapped; keep it until a put is complete, and withdraw what is exposed "
                 "before it is freed")));
    if (inbox_->over() && !outbox_->is_idle()) outbox_->drop();
  }
  return state();
}

Status SocketConnection::violated(std::unique_ptr<Error> error) {
  violation_ = *error;
  outbox_->drop();
  const bool is_peers = error->kind == ErrorKind::peer;
  const bool is_altered = error->reason == FailureReason::link;
  const auto peers = is_altered ? Fault::Kind::altered : Fault::Kind::protocol_violation;
  const Fault fault{.kind = is_peers ? peers : Fault::Kind::failed,
                    .rank = is_peers ? peer_ : self_};
  say_on_each_stream({.type = Frame::Type::fault, .value = pack(fault)});
  outbox_->send();
  return error;
}

// One of them may be stuck in the middle of a piece.
void SocketConnection::say_on_each_stream(const Frame& frame) {
  for (auto& stream : streams_)
    if (!stream->is_closed() && stream->has_room()) stream->push(frame, nullptr, Outbox::no_put);
}

Status SocketConnection::check_peer() {
  UNISONO_TRY(progress());
  const std::lock_guard lock(mutex_);
  if (!gone()) return {};
  if (!saw_peer_gone_) {
    saw_peer_gone_ = true;
    return {};
  }
  if (inbox_->said_bye()) return peer_left(peer_);
  if (failover_ && inbox_->has_left()) {
    Error left = peer_left(peer_);
    left.message += "; some of what it had sent was lost with " + failover_->last_lost();
    return left;
  }
  return peer_error(peer_, "rank ", peer_, " failed: its connection from ", pending_->peer_address,
                    " has ended", failover_ ? "; the last was " + failover_->last_lost() : "");
}

bool SocketConnection::is_unanswered() {
  const std::lock_guard lock(mutex_);
  const auto is_unanswered = [](const auto& stream) {
    return sys::is_unanswered(stream->socket());
  };
  if (!failover_) return std::ranges::any_of(streams_, is_unanswered);
  return std::ranges::all_of(
      streams_, [&](const auto& stream) { return stream->is_closed() || is_unanswered(stream); });
}

void SocketConnection::abort(Fault fault) {
  if (fault.kind == Fault::Kind::none) fault = {.kind = Fault::Kind::aborted, .rank = self_};
  const std::lock_guard lock(mutex_);
  if (fault_ != 0) return;
  fault_ = pack(fault);
  exposed_.clear();
  gets_.clear();
  if (inbox_ && inbox_->receives_into(0)) receives_ = false;
  if (outbox_) tell_fault();
}

void SocketConnection::tell_fault() {
  outbox_->drop();
  say_on_each_stream({.type = Frame::Type::fault, .value = fault_});
  outbox_->send();
}

std::size_t SocketConnection::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = sizeof *this + sizeof *pending_ + pending_->peer_address.capacity() +
                      exposed_.memory_bytes() + gets_.memory_bytes();
  for (const auto& stream : streams_) bytes += stream->memory_bytes();
  bytes += sys::resident_bytes(region_memory_.data(), region_memory_.bytes());
  bytes += sys::resident_bytes(signals_memory_.data(), signals_memory_.bytes());
  if (inbox_) bytes += inbox_->memory_bytes() + outbox_->memory_bytes();
  return bytes;
}

}  // namespace

Result<std::unique_ptr<Connection>> make_connection(std::shared_ptr<Hub> hub,
                                                    const ConnectionRequest& request) {
  UNISONO_TRY(check_request(request));
  UNISONO_ASSIGN(auto region, sys::PrivateMemory::allocate(request.geometry.region_bytes));
  UNISONO_ASSIGN(auto signals,
                 sys::PrivateMemory::allocate(static_cast<std::size_t>(request.geometry.signals) *
                                              sizeof(std::uint64_t)));
  UNISONO_ASSIGN(auto pending, hub->open(request));
  return std::unique_ptr<Connection>(std::make_unique<SocketConnection>(
      std::move(hub), std::move(pending), std::move(region), std::move(signals)));
}

}  // namespace unisono::transport::socket
