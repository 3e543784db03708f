// Which streams can be read or written, for all connections of a transport with one system call.
#pragma once

#include <unisono/result.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_set>

#include "sys/tcp_socket.h"

struct epoll_event;

namespace unisono::transport::socket {

// Set by the poller, cleared by the stream's owner before it tries: an edge that comes in between
// is then not lost. Both are hints; the sockets are what counts, hence relaxed.
struct Readiness {
  std::atomic<bool> readable{true};
  std::atomic<bool> writable{true};
  // The end of the stream has come, behind what can still be read; stays set.
  std::atomic<bool> ending{false};
};

class Poller {
 public:
  static Result<std::unique_ptr<Poller>> make();

  Status add(const sys::Socket& socket, Readiness& readiness);
  // Afterwards the poller does not touch the readiness any more.
  void remove(const sys::Socket& socket, const Readiness& readiness);
  // Looks, unless somebody else does or has just done so.
  void poll();
  // Sleeps until there is something, and finds it: one system call for both. False at once where
  // another thread does so already, or the system cannot.
  bool wait(std::int64_t at_most_ns);
  // Polls as readable when poll() would find something.
  int descriptor() const { return epoll_.get(); }

 private:
  explicit Poller(sys::Socket epoll) : epoll_(std::move(epoll)) {}
  // With the mutex.
  void note(std::span<const epoll_event> events);

  sys::Socket epoll_;
  std::mutex mutex_;
  // What is watched. wait() sleeps without the mutex, so that what it finds may have been removed;
  // of another stream at the same address it is a hint that does no harm.
  std::unordered_set<const Readiness*> watched_;
  std::atomic<std::int64_t> last_poll_ns_{0};
  std::atomic<bool> someone_waits_{false};
};

}  // namespace unisono::transport::socket
