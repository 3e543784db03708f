#include "transport/shm/segment.h"

#include <map>
#include <mutex>

#include "base/try.h"

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

std::size_t end_bytes(const Geometry& geometry) {
  return signals_bytes(geometry) + whole_pages(geometry.region_bytes);
}

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

Result<std::shared_ptr<Segment>> Segment::open(const std::string& name, const Geometry& geometry) {
  const std::size_t bytes = sys::page_bytes() + 2 * end_bytes(geometry);
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.segments, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = known.segments.find(name); found != known.segments.end()) {
    auto segment = found->second.lock();
    if (segment && segment->memory_.bytes() == bytes && segment->header().unlinked.load() == 0)
      return segment;
  }
  UNISONO_ASSIGN(auto memory, sys::SharedMemory::open(name, bytes));
  auto segment = std::make_shared<Segment>(name, std::move(memory), geometry);
  known.segments[name] = segment;
  return segment;
}

Segment::Segment(std::string name, sys::SharedMemory memory, const Geometry& geometry)
    : name_(std::move(name)),
      memory_(std::move(memory)),
      signals_bytes_(signals_bytes(geometry)),
      end_bytes_(end_bytes(geometry)) {}

std::atomic<std::uint64_t>* Segment::signals(int end) const {
  return reinterpret_cast<std::atomic<std::uint64_t>*>(memory_.data() + sys::page_bytes() +
                                                       static_cast<std::size_t>(end) * end_bytes_);
}

std::byte* Segment::region(int end) const {
  return reinterpret_cast<std::byte*>(signals(end)) + signals_bytes_;
}

std::size_t Segment::resident_bytes(int end) const {
  const std::size_t offset = sys::page_bytes() + static_cast<std::size_t>(end) * end_bytes_;
  return sys::page_bytes() / 2 + sys::resident_bytes(memory_.data() + offset, end_bytes_);
}

void Segment::unlink_once() {
  if (header().unlinked.exchange(1) == 0) sys::SharedMemory::unlink(name_);
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
      const bool known = state != EndState::claimed && end.magic == EndRecord::current_magic;
      if (known && !sys::ProcessWatch(end.process).alive())
        dead = true;
      else
        alive = true;
    }
    if (dead && !alive) sys::SharedMemory::unlink(name);
  }
}

}  // namespace unisono::transport::shm
