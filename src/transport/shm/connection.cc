#include "transport/shm/connection.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "base/block_copy.h"
#include "base/error.h"
#include "base/hmac.h"
#include "base/str.h"
#include "base/try.h"
#include "sys/cross_memory.h"
#include "sys/process.h"
#include "transport/fault.h"
#include "transport/request.h"
#include "transport/shm/segment.h"

namespace unisono::transport::shm {
namespace {

// A copy within the process looks for a fault of its source this often.
constexpr std::size_t guarded_copy_bytes = std::size_t{1} << 20;
// Tries to get past segments that a dead process of the same job and rank has left.
constexpr int max_stale_segments = 4;

std::string segment_name(const std::string& job, const ConnectionRequest& request) {
  const auto [low, high] = std::minmax(request.self, request.peer);
  return str("/", segment_prefix, job, "-", hex(request.key.communicator), "-", request.key.epoch,
             "-", request.key.channel, "-", low, "-", high);
}

Sha256Digest prove(const std::string& secret, const std::string& name, int end) {
  const std::byte role{static_cast<unsigned char>(end)};
  return hmac_sha256(std::as_bytes(std::span(secret)),
                     {std::as_bytes(std::span(name)), std::span(&role, 1)});
}

class ShmConnection final : public Connection {
 public:
  ShmConnection(std::string name, const std::string& secret, const ConnectionRequest& request,
                std::shared_ptr<Segment> segment)
      : Connection(request.self, request.peer),
        name_(std::move(name)),
        key_(request.key),
        geometry_(request.geometry),
        end_(request.self < request.peer ? 0 : 1),
        segment_(std::move(segment)),
        expected_proof_(prove(secret, name_, 1 - end_)) {
    region_ = segment_->region(end_);
    signals_ = segment_->signals(end_);
  }

  // Only after the end was claimed.
  void join(const std::string& secret);
  ~ShmConnection() override;

  Result<bool> ready() override;
  Result<bool> try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                       Signal signal) override;
  std::uint64_t puts_started() const override { return puts_; }
  std::uint64_t puts_completed() const override { return puts_; }
  bool can_read_peer() const override { return can_read_peer_; }
  Status read_peer(void* destination, std::uint64_t peer_address, std::size_t bytes) override;
  bool can_write_peer() const override { return can_read_peer_; }
  Status write_peer(std::uint64_t peer_address, const void* source, std::size_t bytes) override;
  Status progress() override;
  Status check_peer() override;
  void abort(Fault fault) override;
  std::size_t memory_bytes() const override { return segment_->resident_bytes(end_); }

 private:
  EndRecord& mine() const { return segment_->header().ends[static_cast<std::size_t>(end_)]; }
  EndRecord& theirs() const { return segment_->header().ends[static_cast<std::size_t>(1 - end_)]; }
  Status check_joined_peer() const;
  void probe_cross_memory();
  template <class Copy>
  Status copy_guarded(std::size_t bytes, const Copy& copy);
  void wait_for_copies() const;

  std::string name_;
  ConnectionKey key_;
  Geometry geometry_;
  int end_;
  std::shared_ptr<Segment> segment_;
  Sha256Digest expected_proof_;
  std::unique_ptr<std::uint64_t> probe_value_;

  bool ready_ = false;
  bool can_read_peer_ = false;
  bool same_process_ = false;
  bool saw_peer_gone_ = false;
  sys::ProcessIdentity peer_process_;
  sys::ProcessWatch peer_watch_;
  std::uint64_t puts_ = 0;
};

void ShmConnection::join(const std::string& secret) {
  std::random_device random;
  probe_value_ = std::make_unique<std::uint64_t>(std::uint64_t{random()} << 32 | random());
  EndRecord& record = mine();
  record.magic = EndRecord::current_magic;
  record.key = key_;
  record.geometry = geometry_;
  record.self = self_;
  record.process = sys::this_process();
  record.probe_address = reinterpret_cast<std::uint64_t>(probe_value_.get());
  record.probe_value = *probe_value_;
  record.proof = prove(secret, name_, end_);
  record.state.store(EndState::joined, std::memory_order_release);
}

ShmConnection::~ShmConnection() {
  // seq_cst: either the peer's copy sees that this end left, or we see its copy (wait_for_copies).
  mine().state.store(EndState::left);
  wait_for_copies();
  segment_->unlink_once();
}

Result<bool> ShmConnection::ready() {
  if (ready_) return true;
  UNISONO_TRY(progress());
  const EndState state = theirs().state.load(std::memory_order_acquire);
  if (state == EndState::absent || state == EndState::claimed) return false;
  UNISONO_TRY(check_joined_peer());
  segment_->unlink_once();
  peer_region_ = segment_->region(1 - end_);
  peer_signals_ = segment_->signals(1 - end_);
  peer_process_ = theirs().process;
  same_process_ = peer_process_ == sys::this_process();
  if (!same_process_) peer_watch_ = sys::ProcessWatch(peer_process_);
  probe_cross_memory();
  ready_ = true;
  return true;
}

Status ShmConnection::check_joined_peer() const {
  const EndRecord& record = theirs();
  if (record.magic != EndRecord::current_magic)
    return peer_error(peer_, "rank ", peer_,
                      " speaks another version of the shared-memory layout (", hex(record.magic),
                      ", expected ", hex(EndRecord::current_magic), ")");
  if (!equal_in_constant_time(record.proof, expected_proof_))
    return peer_error(peer_, "rank ", peer_,
                      " did not prove the job's secret; all ranks of a job "
                      "must have the same");
  if (!(record.key == key_) || record.self != peer_)
    return peer_error(peer_, "expected rank ", peer_, " on ", describe(key_), ", but rank ",
                      record.self, " joined on ", describe(record.key));
  const Geometry joined_with = record.geometry;
  if (!(joined_with == geometry_)) return geometry_mismatch(peer_, joined_with, geometry_);
  return {};
}

void ShmConnection::probe_cross_memory() {
  const EndRecord& record = theirs();
  if (same_process_) {
    can_read_peer_ = true;
    return;
  }
  // A process id of another namespace names somebody else here; the value tells.
  std::uint64_t value = 0;
  can_read_peer_ =
      sys::read_process_memory(peer_process_.pid, &value, record.probe_address, sizeof value)
          .ok() &&
      value == record.probe_value;
}

Result<bool> ShmConnection::try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                                    Signal signal) {
  if (!ready_) return bug("put to rank ", peer_, " before the connection is ready");
  UNISONO_TRY(check_put(geometry_, peer_, bytes, peer_offset, signal));
  if (bytes > 0) block_copy(peer_region_ + peer_offset, source, bytes);
  // Release: whoever acquires the value sees the bytes of this and of every earlier put.
  if (signal.index >= 0) peer_signals_[signal.index].store(signal.value, std::memory_order_release);
  ++puts_;
  return true;
}

Status ShmConnection::read_peer(void* destination, std::uint64_t peer_address, std::size_t bytes) {
  if (!can_read_peer_) return bug("the memory of rank ", peer_, " cannot be read from here");
  auto* const to = static_cast<std::byte*>(destination);
  if (same_process_)
    return copy_guarded(bytes, [&](std::size_t at, std::size_t part) -> Status {
      block_copy(to + at, reinterpret_cast<const std::byte*>(peer_address) + at, part);
      return {};
    });
  auto copied = sys::read_process_memory(peer_process_.pid, destination, peer_address, bytes);
  if (copied.ok()) return {};
  UNISONO_TRY(progress());
  return peer_error(peer_, "rank ", peer_,
                    " withdrew memory that it had offered: ", copied.error().message);
}

// Guarded between processes too: there a late read finds freed memory gone, but a late write would
// change what has taken its place.
Status ShmConnection::write_peer(std::uint64_t peer_address, const void* source,
                                 std::size_t bytes) {
  if (!can_read_peer_) return bug("the memory of rank ", peer_, " cannot be written from here");
  const auto* const from = static_cast<const std::byte*>(source);
  return copy_guarded(bytes, [&](std::size_t at, std::size_t part) -> Status {
    if (!same_process_)
      return sys::write_process_memory(peer_process_.pid, peer_address + at, from + at, part);
    block_copy(reinterpret_cast<std::byte*>(peer_address) + at, from + at, part);
    return {};
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
  if (!copied.ok())
    return peer_error(peer_, "rank ", peer_,
                      " withdrew memory that it had offered: ", copied.error().message);
  return peer_error(peer_, "rank ", peer_, " left while its memory was being copied");
}

// As long as it takes the peer to copy guarded_copy_bytes; a peer that died copies no more.
void ShmConnection::wait_for_copies() const {
  while (segment_->copies_of(end_).load() != 0 && (same_process_ || peer_watch_.alive()))
    std::this_thread::yield();
}

Status ShmConnection::progress() {
  if (const auto word = theirs().fault.load(std::memory_order_acquire); word != 0) [[unlikely]]
    return told_error(peer_, unpack_fault(word));
  if (const auto word = mine().fault.load(std::memory_order_acquire); word != 0) [[unlikely]]
    return own_error(peer_, unpack_fault(word));
  return {};
}

Status ShmConnection::check_peer() {
  UNISONO_TRY(progress());
  if (!ready_) return {};
  // Acquire: what the peer put before it left is visible to who sees that it left.
  const bool left = theirs().state.load(std::memory_order_acquire) == EndState::left;
  const bool died = !left && !same_process_ && !peer_watch_.alive();
  if (!left && !died) return {};
  if (!saw_peer_gone_) {
    saw_peer_gone_ = true;
    return {};
  }
  if (died)
    return peer_error(peer_, "rank ", peer_, " died: its process ", peer_process_.pid,
                      " has ended");
  return peer_error(peer_, "rank ", peer_, " left while this rank still waits for it");
}

void ShmConnection::abort(Fault fault) {
  if (fault.kind == Fault::Kind::none) fault = {.kind = Fault::Kind::aborted, .rank = self_};
  std::uint64_t none = 0;
  mine().fault.compare_exchange_strong(none, pack(fault));
  wait_for_copies();
}

// Whether this end of the segment is ours now. False for one that a dead process has left.
Result<bool> claim(Segment& segment, const ConnectionRequest& request) {
  EndRecord& record = segment.header().ends[request.self < request.peer ? 0 : 1];
  EndState state = EndState::absent;
  if (record.state.compare_exchange_strong(state, EndState::claimed)) return true;
  const bool stale = state == EndState::left ||
                     (state == EndState::joined && !sys::ProcessWatch(record.process).alive());
  if (stale) return false;
  return misuse("rank ", request.self, " already has a connection to rank ", request.peer, " on ",
                describe(request.key));
}

}  // namespace

Result<std::unique_ptr<Connection>> make_connection(const std::string& job,
                                                    const std::string& secret,
                                                    const ConnectionRequest& request) {
  UNISONO_TRY(check_request(request));
  const std::string name = segment_name(job, request);
  for (int attempt = 0; attempt < max_stale_segments; ++attempt) {
    UNISONO_ASSIGN(auto segment, Segment::open(name, request.geometry));
    UNISONO_ASSIGN(const bool claimed, claim(*segment, request));
    if (claimed) {
      auto connection = std::make_unique<ShmConnection>(name, secret, request, std::move(segment));
      connection->join(secret);
      return std::unique_ptr<Connection>(std::move(connection));
    }
    segment->unlink_once();
  }
  return environment_error("shared memory ", name, " is left over from ", max_stale_segments,
                           " dead processes; remove it from /dev/shm");
}

}  // namespace unisono::transport::shm
