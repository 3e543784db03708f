#include "transport/socket/poller.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>

#include "base/error.h"
#include "transport/clock.h"

namespace unisono::transport::socket {
namespace {

// A system call takes about a third of a microsecond. Connections polled in turn share one.
constexpr std::int64_t shared_poll_ns = 1000;
constexpr std::size_t most_events = 64;

}  // namespace

Result<std::unique_ptr<Poller>> Poller::make() {
  sys::Socket epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("making an epoll", errno);
  return std::unique_ptr<Poller>(new Poller(std::move(epoll)));
}

Status Poller::add(const sys::Socket& socket, Readiness& readiness) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &readiness;
  const std::lock_guard lock(mutex_);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0)
    return system_error("watching a stream", errno);
  watched_.insert(&readiness);
  return {};
}

void Poller::remove(const sys::Socket& socket, const Readiness& readiness) {
  // Under the lock: no event of this socket is being noted, and none comes later.
  const std::lock_guard lock(mutex_);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
  watched_.erase(&readiness);
}

void Poller::poll() {
  const std::int64_t now = now_ns();
  if (now - last_poll_ns_.load(std::memory_order_relaxed) < shared_poll_ns) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  last_poll_ns_.store(now, std::memory_order_relaxed);
  std::array<epoll_event, most_events> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  if (count > 0) note({events.data(), static_cast<std::size_t>(count)});
}

bool Poller::wait(std::int64_t at_most_ns) {
  // Relaxed: it guards no memory.
  if (someone_waits_.exchange(true, std::memory_order_relaxed)) return false;
  std::array<epoll_event, most_events> events;
  const timespec at_most{at_most_ns / ns_per_s, static_cast<long>(at_most_ns % ns_per_s)};
  // Not by the C library, which may be older than this call (Linux 5.11).
  const long count = syscall(SYS_epoll_pwait2, epoll_.get(), events.data(),
                             static_cast<int>(events.size()), &at_most, nullptr, 0);
  const bool has_slept = count >= 0 || errno == EINTR;
  someone_waits_.store(false, std::memory_order_relaxed);
  if (count > 0) {
    const std::lock_guard lock(mutex_);
    note({events.data(), static_cast<std::size_t>(count)});
  }
  return has_slept;
}

void Poller::note(std::span<const epoll_event> events) {
  for (const epoll_event& event : events) {
    if (!watched_.contains(static_cast<const Readiness*>(event.data.ptr))) continue;
    auto& readiness = *static_cast<Readiness*>(event.data.ptr);
    const bool over = (event.events & (EPOLLERR | EPOLLHUP)) != 0;
    if (over || (event.events & EPOLLRDHUP) != 0)
      readiness.ending.store(true, std::memory_order_relaxed);
    if (over || (event.events & (EPOLLIN | EPOLLRDHUP)) != 0)
      readiness.readable.store(true, std::memory_order_relaxed);
    if (over || (event.events & EPOLLOUT) != 0)
      readiness.writable.store(true, std::memory_order_relaxed);
  }
}

}  // namespace unisono::transport::socket
