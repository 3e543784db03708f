#include "device.h"

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace unisono::emulated {
namespace {

constexpr std::size_t alignment = 512;
constexpr int fresh = 0xa5;  // what new memory holds

}  // namespace

std::uint64_t Allocations::allocate(std::size_t bytes, int device) {
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void* const data = std::aligned_alloc(alignment, whole);
  if (data == nullptr) return 0;
  std::memset(data, fresh, whole);
  const auto address = reinterpret_cast<std::uint64_t>(data);
  const std::lock_guard lock(mutex_);
  all_[address] = {address, bytes, device, next_identity_++};
  return address;
}

bool Allocations::free(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  if (all_.erase(address) == 0) return false;
  std::free(reinterpret_cast<void*>(address));
  return true;
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
  static Allocations all;
  return all;
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
  changed_.notify_all();
}

bool Event::is_complete() const {
  const std::lock_guard lock(mutex_);
  return completed_ >= recorded_;
}

void Event::await(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return completed_ >= number; });
}

std::int64_t Event::completed_ns() const {
  const std::lock_guard lock(mutex_);
  return completed_ns_;
}

Stream::Stream() : worker_([this] { work(); }) {}

Stream::~Stream() {
  synchronize();
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  worker_.join();
}

void Stream::add(Operation operation) {
  if (capture != nullptr) {
    capture->operations.push_back(std::move(operation));
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return operations_.size() < most_operations; });
  operations_.push_back(std::move(operation));
  changed_.notify_all();
}

void Stream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return operations_.empty() && !is_working_; });
}

bool Stream::is_idle() {
  const std::lock_guard lock(mutex_);
  return operations_.empty() && !is_working_;
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_ending_ || !operations_.empty(); });
    if (operations_.empty()) return;
    const Operation operation = std::move(operations_.front());
    operations_.pop_front();
    is_working_ = true;
    lock.unlock();
    operation();
    lock.lock();
    is_working_ = false;
    changed_.notify_all();
  }
}

}  // namespace unisono::emulated
