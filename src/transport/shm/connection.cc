#include "transport/shm/connection.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "base/block_copy.h"
#include "base/error.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/try.h"
#include "sys/cross_memory.h"
#include "sys/process.h"
#include "transport/clock.h"
#include "transport/exposed_memory.h"
#include "transport/fault.h"
#include "transport/request.h"
#include "transport/shm/segment.h"

namespace unisono::transport::shm {
namespace {

// A copy within the process looks for a fault of its source this often.
constexpr std::size_t guarded_copy_bytes = std::size_t{1} << 20;
// For the peer to copy as much; it may be stopped meanwhile.
constexpr std::int64_t copies_deadline_ns = 3 * ns_per_s;

class ShmConnection final : public Connection {
 public:
  ShmConnection(const Key& proof_key, const ConnectionRequest& request,
                std::shared_ptr<Segment> segment)
      : Connection(request.self, request.peer),
        key_(request.key),
        ranks_(request.ranks),
        geometry_(request.geometry),
        end_(request.self < request.peer ? 0 : 1),
        segment_(std::move(segment)),
        proof_key_(proof_key) {
    region_ = segment_->region(end_);
    signals_ = segment_->signals(end_);
  }

  // Only after the end was claimed.
  void join();
  ~ShmConnection() override;

  Result<bool> ready() override;
  Status reserve(std::size_t offset, std::size_t bytes) override {
    return reserve(end_, offset, bytes);
  }
  Status reserve_at_peer(std::size_t offset, std::size_t bytes) override {
    return reserve(1 - end_, offset, bytes);
  }
  Result<bool> try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                       Signal signal) override;
  bool can_get() const override { return can_read_peer_; }
  Result<bool> try_get(const RemoteMemory& memory, std::size_t offset, void* destination,
                       std::size_t bytes) override;
  std::uint64_t gets_started() const override { return gets_; }
  std::uint64_t gets_completed() const override { return gets_; }
  std::uint64_t puts_started() const override { return puts_; }
  std::uint64_t puts_completed() const override { return puts_; }
  bool can_read_peer() const override { return can_read_peer_; }
  Status read_peer(void* destination, std::uint64_t peer_address, std::size_t bytes) override;
  Result<RemoteMemory> expose(void* memory, std::size_t bytes) override;
  void withdraw(const RemoteMemory& memory) override;
  bool puts_in_place() const override { return can_read_peer_; }
  Result<bool> try_put_to(const RemoteMemory& memory, std::size_t offset, const void* source,
                          std::size_t bytes, Signal signal) override;
  Status progress() override;
  Status check_peer() override;
  void abort(Fault fault) override;
  std::size_t memory_bytes() const override { return segment_->resident_bytes(end_); }

 private:
  EndRecord& mine() const { return segment_->header().ends[static_cast<std::size_t>(end_)]; }
  EndRecord& theirs() const { return segment_->header().ends[static_cast<std::size_t>(1 - end_)]; }
  Status reserve(int end, std::size_t offset, std::size_t bytes) const;
  Status meet_peer();
  void probe_cross_memory();
  template <class Copy>
  Status copy_guarded(std::size_t bytes, const Copy& copy);
  Status reach_exposed(Access access, const RemoteMemory& memory, std::size_t offset, void* local,
                       std::size_t bytes);
  Error unmapped(const Error& why) const;
  void store(Signal signal);
  void give_up(Fault fault);
  bool await_copies();
  Status peer_lives() const;

  ConnectionKey key_;
  int ranks_;
  Geometry geometry_;
  int end_;
  std::shared_ptr<Segment> segment_;
  Key proof_key_;
  std::unique_ptr<std::uint64_t> probe_value_;

  // The peer's, from when it has proved the job's key; nothing of its end is looked at before.
  std::optional<EndFacts> peer_facts_;
  bool ready_ = false;
  bool can_read_peer_ = false;
  bool same_process_ = false;
  bool saw_peer_gone_ = false;
  sys::ProcessWatch peer_watch_;
  std::uint64_t puts_ = 0;
  std::uint64_t gets_ = 0;
  std::uint64_t keys_ = 0;
  std::size_t put_reserved_bytes_ = 0;        // at the beginning of the peer's region
  std::atomic<bool> peer_is_stopped_{false};  // in a copy, for longer than anybody waits
  std::atomic<std::uint64_t> fault_{0};  // ours, packed; the peer can write what is in the segment
};

void ShmConnection::join() {
  std::random_device random;
  probe_value_ = std::make_unique<std::uint64_t>(std::uint64_t{random()} << 32 | random());
  keys_ = (std::uint64_t{random()} << 32 | random()) / (2 * most_exposed);
  EndRecord& record = mine();
  record.facts = {.magic = EndFacts::current_magic,
                  .geometry = geometry_,
                  .process = sys::this_process(),
                  .probe_address = reinterpret_cast<std::uint64_t>(probe_value_.get()),
                  .probe_value = *probe_value_};
  record.proof = prove(proof_key_, end_, record.facts);
  record.state.store(EndState::joined, std::memory_order_release);
}

ShmConnection::~ShmConnection() {
  // seq_cst: either the peer's copy sees that this end left, or we see its copy (await_copies).
  mine().state.store(EndState::left);
  await_copies();
  segment_->unlink_once();
  erase(proof_key_);
}

Result<bool> ShmConnection::ready() {
  if (ready_) return true;
  UNISONO_TRY(progress());
  if (!peer_facts_) return false;
  segment_->unlink_once();
  host_link_ = {.region = segment_->region(1 - end_), .signals = segment_->signals(1 - end_)};
  same_process_ = peer_facts_->process == sys::this_process();
  if (!same_process_) peer_watch_ = sys::ProcessWatch(peer_facts_->process);
  probe_cross_memory();
  ready_ = true;
  return true;
}

Status ShmConnection::reserve(int end, std::size_t offset, std::size_t bytes) const {
  auto reserved = segment_->reserve(end, offset, bytes);
  if (reserved.ok()) return {};
  return no_memory(self_, peer_, *reserved.take_error());
}

// The facts are copied before they are checked: the memory is the peer's to write.
Status ShmConnection::meet_peer() {
  const EndState state = theirs().state.load(std::memory_order_acquire);
  if (state == EndState::absent || state == EndState::claimed) return {};
  const EndFacts facts = theirs().facts;
  const Sha256Digest proof = theirs().proof;
  // It is of another version, or of another process of this user: the names are no secret from it.
  if (!equal_in_constant_time(proof, prove(proof_key_, 1 - end_, facts)))
    return environment_error("the shared memory of the connection to rank ", peer_, " on ",
                             describe(key_),
                             " was opened by a process that is not a rank of this job, or runs "
                             "another version of unisono");
  if (!(facts.geometry == geometry_)) return geometry_mismatch(peer_, facts.geometry, geometry_);
  peer_facts_ = facts;
  return {};
}

void ShmConnection::probe_cross_memory() {
  // A process id of another namespace names somebody else here; the value tells.
  std::uint64_t value = 0;
  const EndFacts& peer = *peer_facts_;
  can_read_peer_ =
      same_process_ ||
      (sys::read_process_memory(peer.process.pid, &value, peer.probe_address, sizeof value).ok() &&
       value == peer.probe_value);
}

Result<bool> ShmConnection::try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                                    Signal signal) {
  if (!ready_) return bug("put to rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_put(geometry_, peer_, bytes, peer_offset, signal));
  if (peer_offset + bytes > put_reserved_bytes_) {
    UNISONO_TRY(reserve_at_peer(put_reserved_bytes_, peer_offset + bytes - put_reserved_bytes_));
    put_reserved_bytes_ = peer_offset + bytes;
  }
  if (bytes > 0) block_copy(host_link_->region + peer_offset, source, bytes);
  store(signal);
  return true;
}

// Release: a reader that acquires the value sees the bytes of this and of every earlier put.
void ShmConnection::store(Signal signal) {
  if (signal.index >= 0)
    host_link_->signals[signal.index].store(signal.value, std::memory_order_release);
  ++puts_;
}

Status ShmConnection::read_peer(void* destination, std::uint64_t peer_address, std::size_t bytes) {
  if (!can_read_peer_)
    return bug("the memory of rank ", peer_, " cannot be read through this connection");
  auto* const to = static_cast<std::byte*>(destination);
  if (same_process_)
    return copy_guarded(bytes, [&](std::size_t at, std::size_t part) -> Status {
      block_copy(to + at, reinterpret_cast<const std::byte*>(peer_address) + at, part);
      return {};
    });
  UNISONO_TRY(peer_lives());
  const auto pid = peer_facts_->process.pid;
  auto copied = sys::read_process_memory(pid, destination, peer_address, bytes);
  if (copied.ok()) return {};
  UNISONO_TRY(progress());
  return unmapped(copied.error());
}

Error ShmConnection::unmapped(const Error& why) const {
  return peer_error(peer_, "rank ", peer_,
                    " unmapped memory that it had offered for zero-copy: ", why.message);
}

// A key is its piece's place and a count from a random number on: no two are the same.
Result<RemoteMemory> ShmConnection::expose(void* memory, std::size_t bytes) {
  UNISONO_TRY(progress());
  UNISONO_TRY(check_host_memory("shm", self_, peer_, memory, bytes));
  auto& pieces = segment_->exposed_by(end_);
  const auto free = std::ranges::find_if(pieces, [](const ExposedPiece& piece) {
    return piece.key.load(std::memory_order_relaxed) == 0;
  });
  if (free == pieces.end()) return too_much_exposed(self_, peer_);
  const std::uint64_t key =
      ++keys_ * most_exposed + static_cast<std::uint64_t>(free - pieces.begin());
  free->bytes.store(bytes, std::memory_order_relaxed);
  free->key.store(key, std::memory_order_release);
  return RemoteMemory{.key = key, .address = reinterpret_cast<std::uint64_t>(memory)};
}

// seq_cst: either the peer's copy sees that the key has gone, or we see its copy.
void ShmConnection::withdraw(const RemoteMemory& memory) {
  std::uint64_t key = memory.key;
  if (key == 0) return;
  if (!segment_->exposed_by(end_)[key % most_exposed].key.compare_exchange_strong(key, 0)) return;
  if (!await_copies()) give_up({.kind = Fault::Kind::failed, .rank = peer_});
}

Result<bool> ShmConnection::try_put_to(const RemoteMemory& memory, std::size_t offset,
                                       const void* source, std::size_t bytes, Signal signal) {
  if (!ready_) return bug("put to rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_put_to(geometry_, peer_, memory, signal));
  // Only read.
  void* const from = const_cast<void*>(source);
  UNISONO_TRY(reach_exposed(Access::put, memory, offset, from, bytes));
  store(signal);
  return true;
}

Result<bool> ShmConnection::try_get(const RemoteMemory& memory, std::size_t offset,
                                    void* destination, std::size_t bytes) {
  if (!ready_) return bug("get from rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_get(peer_, memory));
  UNISONO_TRY(reach_exposed(Access::get, memory, offset, destination, bytes));
  ++gets_;
  return true;
}

// Guarded between processes too: there a late read_peer() finds freed memory gone, but this would
// change or read what has taken its place.
Status ShmConnection::reach_exposed(Access access, const RemoteMemory& memory, std::size_t offset,
                                    void* local, std::size_t bytes) {
  if (!can_read_peer_)
    return bug("the memory of rank ", peer_, " cannot be reached through this connection");
  auto* const here = static_cast<std::byte*>(local);
  const bool is_get = access == Access::get;
  const ExposedPiece& piece = segment_->exposed_by(1 - end_)[memory.key % most_exposed];
  return copy_guarded(bytes, [&](std::size_t at, std::size_t part) -> Status {
    // seq_cst, as the count of copies: see withdraw().
    if (piece.key.load() != memory.key) return not_exposed(access, self_, peer_, peer_, bytes);
    const std::uint64_t size = piece.bytes.load(std::memory_order_relaxed);
    if (bytes > size || offset > size - bytes)
      return past_exposed(access, self_, peer_, peer_, bytes, offset, size);
    const std::uint64_t address = memory.address + offset + at;
    if (same_process_) {
      auto* const there = reinterpret_cast<std::byte*>(address);
      block_copy(is_get ? here + at : there, is_get ? there : here + at, part);
      return {};
    }
    UNISONO_TRY(peer_lives());
    const auto pid = peer_facts_->process.pid;
    const Status copied = is_get ? sys::read_process_memory(pid, here + at, address, part)
                                 : sys::write_process_memory(pid, address, here + at, part);
    return copied.ok() ? Status{} : unmapped(copied.error());
  });
}

// The peer's memory may be freed as soon as its abort() or destructor has returned. They mark their
// end and then look for copies; the copy here counts itself and then looks for the mark. All four
// accesses are seq_cst, so at least one of the two sees the other.
template <class Copy>
Status ShmConnection::copy_guarded(std::size_t bytes, const Copy& copy) {
  std::atomic<int>& copies = segment_->copies_of(1 - end_);
  bool withdrawn = false;
  Status copied;
  for (std::size_t at = 0; at < bytes && !withdrawn && copied.ok(); at += guarded_copy_bytes) {
    copies.fetch_add(1);
    withdrawn = theirs().fault.load() != 0 || theirs().state.load() == EndState::left;
    if (!withdrawn) copied = copy(at, std::min(guarded_copy_bytes, bytes - at));
    copies.fetch_sub(1);
  }
  if (!withdrawn && copied.ok()) return {};
  UNISONO_TRY(progress());
  if (!copied.ok()) return copied;
  return peer_error(peer_, "rank ", peer_,
                    " left the communicator while its memory was being copied");
}

// As long as it takes the peer to copy guarded_copy_bytes; a peer that died copies no more. False:
// the peer is stopped in a copy, and nobody can keep it from going on when it is continued.
bool ShmConnection::await_copies() {
  const std::int64_t deadline = now_ns() + copies_deadline_ns;
  while (segment_->copies_of(end_).load() != 0 && (same_process_ || peer_watch_.alive())) {
    if (peer_is_stopped_.load()) return false;
    if (now_ns() > deadline) {
      peer_is_stopped_.store(true);
      log(LogLevel::error, "rank ", peer_, " has been copying memory of rank ", self_, " for ",
          copies_deadline_ns / ns_per_s,
          " s; its process is stopped, and may still change that memory when it is continued");
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

// The number of a process that has ended may be another one's.
Status ShmConnection::peer_lives() const {
  if (same_process_ || peer_watch_.alive()) return {};
  return peer_error(peer_, "rank ", peer_, " failed: its process ", peer_facts_->process.pid,
                    " has ended");
}

Status ShmConnection::progress() {
  if (!peer_facts_) [[unlikely]]
    UNISONO_TRY(meet_peer());
  if (const auto word = peer_facts_ ? theirs().fault.load(std::memory_order_acquire) : 0; word != 0)
      [[unlikely]] {
    const auto fault = unpack_fault(word, ranks_);
    return fault ? told_error(peer_, *fault) : impossible_fault(peer_, word, ranks_);
  }
  if (const auto word = fault_.load(std::memory_order_acquire); word != 0) [[unlikely]]
    return own_error(peer_, unpack(word));
  return {};
}

Status ShmConnection::check_peer() {
  UNISONO_TRY(progress());
  if (!ready_) return {};
  // Acquire: what the peer put before it left is visible to who sees that it left.
  const bool left = theirs().state.load(std::memory_order_acquire) == EndState::left;
  Status lives = left ? Status{} : peer_lives();
  if (!left && lives.ok()) return {};
  if (!std::exchange(saw_peer_gone_, true)) return {};
  if (!lives.ok()) return lives;
  return peer_left(peer_);
}

void ShmConnection::abort(Fault fault) {
  give_up(fault);
  await_copies();
}

void ShmConnection::give_up(Fault fault) {
  if (fault.kind == Fault::Kind::none) fault = {.kind = Fault::Kind::aborted, .rank = self_};
  std::uint64_t none = 0;
  fault_.compare_exchange_strong(none, pack(fault));
  // seq_cst: either the peer's copy sees this, or we see its copy (await_copies).
  mine().fault.store(fault_.load());
}

}  // namespace

Result<std::unique_ptr<Connection>> make_connection(const Key& job_key,
                                                    const ConnectionRequest& request) {
  UNISONO_TRY(check_request(request));
  const auto [low, high] = std::minmax(request.self, request.peer);
  const std::string name = segment_name(job_key, request.key, low, high);
  Key proof_key = derive_connection_key(job_key, "unisono segment proof", request.key, low, high);
  UNISONO_ASSIGN(auto segment, claim_segment(name, request));
  auto connection = std::make_unique<ShmConnection>(proof_key, request, std::move(segment));
  erase(proof_key);
  connection->join();
  return std::unique_ptr<Connection>(std::move(connection));
}

}  // namespace unisono::transport::shm
