#include "transport/shm/segment.h"

#include <map>
#include <mutex>

#include "base/error.h"
#include "base/hmac.h"
#include "base/str.h"
#include "base/try.h"
#include "base/wire.h"
#include "transport/request.h"

namespace unisono::transport::shm {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<EndState>::is_always_lock_free);
static_assert(sizeof(Header) <= 4096);

std::size_t whole_pages(std::size_t bytes) {
  const std::size_t page = sys::page_bytes();
  return (bytes + page - 1) / page * page;
}

std::size_t signals_bytes(const Geometry& geometry) {
  return whole_pages(static_cast<std::size_t>(geometry.signals) * sizeof(std::uint64_t));
}

std::size_t head_bytes(std::size_t signals_bytes) { return sys::page_bytes() + 2 * signals_bytes; }

// The segments that this process has mapped, by name.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Segment>> segments;
};

Registry& registry() {
  static Registry process_registry;
  return process_registry;
}

}  // namespace

// The key is of this connection and its two ranks alone, and the magic is this version's: no other
// end has this proof.
Sha256Digest prove(const Key& key, int end, const EndFacts& facts) {
  WireWriter writer;
  writer.number(static_cast<std::uint8_t>(end));
  writer.number(EndFacts::current_magic);
  writer.number(std::uint64_t{facts.geometry.region_bytes});
  writer.number(static_cast<std::uint32_t>(facts.geometry.signals));
  writer.number(facts.geometry.layout);
  writer.number(static_cast<std::uint32_t>(facts.process.pid));
  writer.number(facts.process.start_time);
  writer.number(facts.process.pid_namespace);
  writer.number(facts.probe_address);
  writer.number(facts.probe_value);
  return hmac_sha256(key, {writer.bytes()});
}

Result<std::shared_ptr<Segment>> Segment::open(const std::string& name, const Geometry& geometry) {
  const std::size_t head = head_bytes(signals_bytes(geometry));
  const std::size_t bytes = head + 2 * whole_pages(geometry.region_bytes);
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.segments, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = known.segments.find(name); found != known.segments.end()) {
    auto segment = found->second.lock();
    if (segment && segment->memory_.bytes() == bytes && segment->header().unlinked.load() == 0)
      return segment;
  }
  UNISONO_ASSIGN(auto memory, sys::SharedMemory::open(name, bytes, head));
  auto segment = std::make_shared<Segment>(name, std::move(memory), geometry);
  known.segments[name] = segment;
  return segment;
}

Segment::Segment(std::string name, sys::SharedMemory memory, const Geometry& geometry)
    : name_(std::move(name)),
      memory_(std::move(memory)),
      signals_bytes_(signals_bytes(geometry)),
      region_bytes_(whole_pages(geometry.region_bytes)) {}

std::atomic<std::uint64_t>* Segment::signals(int end) const {
  return reinterpret_cast<std::atomic<std::uint64_t>*>(
      memory_.data() + sys::page_bytes() + static_cast<std::size_t>(end) * signals_bytes_);
}

std::byte* Segment::region(int end) const {
  return memory_.data() + head_bytes(signals_bytes_) +
         static_cast<std::size_t>(end) * region_bytes_;
}

Status Segment::reserve(int end, std::size_t offset, std::size_t bytes) const {
  return memory_.reserve(static_cast<std::size_t>(region(end) - memory_.data()) + offset, bytes);
}

std::size_t Segment::resident_bytes(int end) const {
  return head_bytes(signals_bytes_) / 2 + sys::resident_bytes(region(end), region_bytes_);
}

void Segment::unlink_once() {
  if (header().unlinked.exchange(1) == 0) sys::SharedMemory::unlink(name_);
}

std::string segment_name(const Key& job_key, const ConnectionKey& key, int low_rank,
                         int high_rank) {
  return str("/", segment_prefix,
             secret_name(
                 derive_connection_key(job_key, "unisono segment name", key, low_rank, high_rank)));
}

void remove_stale_segments() {
  for (const std::string& name : sys::SharedMemory::names(segment_prefix)) {
    alignas(Header) std::byte bytes[sizeof(Header)];
    if (!sys::SharedMemory::peek(name, bytes)) continue;
    const auto& header = *reinterpret_cast<const Header*>(bytes);
    bool dead = false;
    bool alive = false;
    for (const EndRecord& end : header.ends) {
      const EndState state = end.state.load(std::memory_order_relaxed);
      if (state == EndState::absent) continue;
      // One that is about to join has not yet said who it is.
      const bool known = state != EndState::claimed && end.facts.magic == EndFacts::current_magic;
      if (known && !sys::ProcessWatch(end.facts.process).alive())
        dead = true;
      else
        alive = true;
    }
    if (dead && !alive) sys::SharedMemory::unlink(name);
  }
}

Error no_memory(int self, int peer, Error why) {
  why.message = str("rank ", self, " cannot share memory with rank ", peer, ": ", why.message);
  return why;
}

namespace {

// Tries to get past segments that a dead process of the same job and rank has left.
constexpr int max_stale_segments = 4;

// Whether this end of the segment is ours now. False for one that a dead process has left.
Result<bool> claim(Segment& segment, const ConnectionRequest& request) {
  EndRecord& record = segment.header().ends[request.self < request.peer ? 0 : 1];
  EndState state = EndState::absent;
  if (record.state.compare_exchange_strong(state, EndState::claimed)) return true;
  const bool stale = state == EndState::left || (state == EndState::joined &&
                                                 !sys::ProcessWatch(record.facts.process).alive());
  if (stale) return false;
  return misuse("rank ", request.self, " already has a connection to rank ", request.peer, " on ",
                describe(request.key));
}

}  // namespace

Result<std::shared_ptr<Segment>> claim_segment(const std::string& name,
                                               const ConnectionRequest& request) {
  for (int attempt = 0; attempt < max_stale_segments; ++attempt) {
    auto segment = Segment::open(name, request.geometry);
    if (!segment.ok()) return no_memory(request.self, request.peer, *segment.take_error());
    UNISONO_ASSIGN(const bool claimed, claim(**segment, request));
    if (claimed) return std::shared_ptr<Segment>(std::move(*segment));
    (*segment)->unlink_once();
  }
  return environment_error("shared memory ", name, " is left over from ", max_stale_segments,
                           " dead processes; remove it from /dev/shm");
}

}  // namespace unisono::transport::shm
