#include "transport/socket/poller.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "base/error.h"
#include "transport/clock.h"

namespace unisono::transport::socket {
namespace {

// A system call takes about a third of a microsecond. Connections polled in turn share one.
constexpr std::int64_t shared_poll_ns = 1000;

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
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0)
    return system_error("watching a stream", errno);
  return {};
}

void Poller::remove(const sys::Socket& socket) {
  // Under the lock: no event of this socket is being looked at, and none comes later.
  const std::lock_guard lock(mutex_);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
}

void Poller::poll() {
  const std::int64_t now = now_ns();
  if (now - last_poll_ns_.load(std::memory_order_relaxed) < shared_poll_ns) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  last_poll_ns_.store(now, std::memory_order_relaxed);
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
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
