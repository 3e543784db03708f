// How blocking code waits in the real world, and what processes of a host share.

#include <poll.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <thread>
#include <utility>

#include "base/try.h"
#include "sys/cross_memory.h"
#include "sys/host.h"
#include "sys/real_world.h"
#include "sys/shared_memory.h"
#include "sys/thread.h"

namespace unisono::sys {
namespace {

class RealThread final : public Thread {
 public:
  explicit RealThread(std::thread thread) : thread_(std::move(thread)) {}
  void join() override { thread_.join(); }

 private:
  std::thread thread_;
};

class RealCondition final : public Condition {
 public:
  void notify_all() override { changed_.notify_all(); }
  void wait_for(std::unique_lock<std::mutex>& lock, std::int64_t at_most_ns) override {
    changed_.wait_for(lock, std::chrono::nanoseconds(at_most_ns));
  }

 private:
  std::condition_variable changed_;
};

}  // namespace

Result<std::unique_ptr<Thread>> RealWorld::start_thread(std::string_view what,
                                                        std::function<void()> run) {
  UNISONO_ASSIGN(std::thread started, sys::start_thread(what, std::move(run)));
  return std::unique_ptr<Thread>(std::make_unique<RealThread>(std::move(started)));
}

std::unique_ptr<Condition> RealWorld::make_condition() { return std::make_unique<RealCondition>(); }

void RealWorld::yield() { sched_yield(); }

std::int64_t RealWorld::lost_turns() {
  thread_local std::int64_t known = -1;
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const std::int64_t before = std::exchange(known, usage.ru_nivcsw);
  return before < 0 ? 0 : known - before;
}

void RealWorld::sleep(std::int64_t at_most_ns, std::span<const int> event_descriptors) {
  const std::int64_t ns = std::max<std::int64_t>(at_most_ns, 0);
  const timespec duration{ns / 1'000'000'000, static_cast<long>(ns % 1'000'000'000)};
  std::array<pollfd, 8> events{};
  const std::size_t count = std::min(event_descriptors.size(), events.size());
  for (std::size_t i = 0; i < count; ++i)
    events[i] = {.fd = event_descriptors[i], .events = POLLIN, .revents = 0};
  ppoll(events.data(), count, &duration, nullptr);
}

Result<std::shared_ptr<std::byte>> RealWorld::share_memory(const std::string& name,
                                                           std::size_t bytes) {
  UNISONO_ASSIGN(auto opened, SharedMemory::open_for_handshake(name, bytes, bytes));
  const auto held = std::make_shared<SharedMemory>(std::move(opened));
  return std::shared_ptr<std::byte>(held, held->data());
}

void RealWorld::remove_shared_name(const std::string& name) { SharedMemory::unlink(name); }

ProcessIdentity RealWorld::process() { return this_process(); }

std::uint64_t RealWorld::address_of(void* data, std::size_t) {
  return reinterpret_cast<std::uint64_t>(data);
}

std::byte* RealWorld::find_memory(const ProcessIdentity& owner, std::uint64_t address) {
  return owner == this_process() ? reinterpret_cast<std::byte*>(address) : nullptr;
}

Status RealWorld::write_memory(const ProcessIdentity& owner, std::uint64_t address,
                               std::span<const std::byte> bytes) {
  return write_process_memory(owner.pid, address, bytes.data(), bytes.size());
}

Status RealWorld::read_memory(const ProcessIdentity& owner, std::uint64_t address,
                              std::span<std::byte> bytes) {
  return read_process_memory(owner.pid, bytes.data(), address, bytes.size());
}

std::string RealWorld::host_identity() { return sys::host_identity(); }

int RealWorld::processors() { return static_cast<int>(std::thread::hardware_concurrency()); }

}  // namespace unisono::sys
