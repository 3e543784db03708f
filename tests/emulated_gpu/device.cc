#include "device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

namespace unisono::emulated {
namespace {

constexpr std::size_t alignment = 512;
constexpr std::size_t page = 4096;
constexpr std::size_t arena_bytes = std::size_t{1} << 38;
// Allocations of so many give their pages back when they are freed.
constexpr std::size_t returned_bytes = std::size_t{1} << 20;
constexpr int fresh = 0xa5;  // what new memory holds

std::size_t whole_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

}  // namespace

// A process that was forked has a copy of its parent's map, but shares what it maps.
bool Allocations::make_arena() {
  if (process_ == getpid()) return true;
  descriptor_ = memfd_create("unisono_emulated_gpu", MFD_CLOEXEC);
  if (descriptor_ < 0 || ftruncate(descriptor_, arena_bytes) != 0) return false;
  void* const mapped = mmap(nullptr, arena_bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
  if (mapped == MAP_FAILED) return false;
  arena_ = reinterpret_cast<std::uint64_t>(mapped);
  all_.clear();
  gaps_ = {{arena_, arena_bytes}};
  process_ = getpid();
  return true;
}

std::uint64_t Allocations::allocate(std::size_t bytes, int device) {
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  const std::lock_guard lock(mutex_);
  if (!make_arena()) return 0;
  const auto gap =
      std::ranges::find_if(gaps_, [&](const auto& one) { return one.second >= whole; });
  if (gap == gaps_.end()) return 0;
  const auto [address, left] = *gap;
  gaps_.erase(gap);
  if (left > whole) gaps_[address + whole] = left - whole;
  std::memset(reinterpret_cast<void*>(address), fresh, whole);
  all_[address] = {address, bytes, device, next_identity_++};
  return address;
}

bool Allocations::free(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(address);
  if (found == all_.end()) return false;
  std::uint64_t begin = address;
  std::uint64_t end = address + (found->second.bytes + alignment - 1) / alignment * alignment;
  all_.erase(found);
  const auto after = gaps_.lower_bound(begin);
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      gaps_.erase(before);
    }
  }
  if (after != gaps_.end() && after->first == end) {
    end += after->second;
    gaps_.erase(after);
  }
  gaps_[begin] = end - begin;
  // What no other allocation has a part of goes back to the machine.
  const std::uint64_t first = whole_pages(begin);
  const std::uint64_t last = std::min(end, whole_pages(end + 1) - page);
  const bool is_large = end - address >= returned_bytes;
  if (is_large && last > first)
    madvise(reinterpret_cast<void*>(first), last / page * page - first, MADV_REMOVE);
  return true;
}

std::optional<SharedAllocation> Allocations::share(std::uint64_t address) const {
  const auto found = at(address);
  if (!found) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return SharedAllocation{process_, descriptor_, found->address - arena_, found->bytes,
                          found->address};
}

std::uint64_t Imports::map(const SharedAllocation& shared) {
  const std::string path =
      "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.descriptor);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return 0;
  const std::uint64_t inside = shared.offset % page;
  const std::size_t bytes = whole_pages(inside + shared.bytes);
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                            static_cast<off_t>(shared.offset - inside));
  close(descriptor);
  if (mapped == MAP_FAILED) return 0;
  const std::uint64_t address = reinterpret_cast<std::uint64_t>(mapped) + inside;
  const std::lock_guard lock(mutex_);
  mapped_[address] = bytes;
  return address;
}

bool Imports::unmap(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = mapped_.find(address);
  if (found == mapped_.end()) return false;
  munmap(reinterpret_cast<void*>(address / page * page), found->second);
  mapped_.erase(found);
  return true;
}

std::size_t Imports::bytes_at(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = mapped_.find(address);
  return found == mapped_.end() ? 0 : found->second - address % page;
}

Imports& imports() {
  static auto* const all = new Imports;
  return *all;
}

std::optional<Allocations::Allocation> Allocations::at(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  auto after = all_.upper_bound(address);
  if (after == all_.begin()) return std::nullopt;
  const Allocation& found = std::prev(after)->second;
  if (address >= found.address + found.bytes) return std::nullopt;
  return found;
}

Allocations& allocations() {
  static auto* const all = new Allocations;
  return *all;
}

std::uint64_t Event::record() {
  const std::lock_guard lock(mutex_);
  return ++recorded_;
}

std::uint64_t Event::recorded() const {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

void Event::complete(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  completed_ = std::max(completed_, number);
  completed_ns_ = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

bool Event::is_complete() const {
  const std::lock_guard lock(mutex_);
  return completed_ >= recorded_;
}

bool Event::is_complete(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return completed_ >= number;
}

std::int64_t Event::completed_ns() const {
  const std::lock_guard lock(mutex_);
  return completed_ns_;
}

}  // namespace unisono::emulated
