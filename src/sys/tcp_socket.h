// Non-blocking TCP sockets, as the data path uses them. (Named socket.h, this file would hide the
// system's <sys/socket.h>.)
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

struct iovec;

namespace unisono::sys {

// Owns a descriptor, which forked children do not have (sys/fork.h).
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor);
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  explicit operator bool() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  void close();

 private:
  int descriptor_ = -1;
};

// What a transfer came to. `error` is an errno; 0 when there was none.
struct Transferred {
  std::size_t bytes = 0;
  bool would_block = false;
  bool ended = false;  // the peer sends no more
  int error = 0;
};

Transferred send_some(const Socket& socket, std::span<const iovec> parts);
Transferred receive_some(const Socket& socket, std::span<const iovec> parts);

// As many descriptors as the system allows this process: each stream takes one, and the soft limit
// is often 1,024 where the hard one is a million. True if the limit was raised.
bool raise_descriptor_limit();
// Whether this process can have no more of them now: then it is not the peer's fault that there is
// no connection.
bool out_of_descriptors();
// Whether a connection waits at a listener. Where descriptors are missing accepting fails, whether
// one does or not.
bool has_waiting_connection(int listener);

// The next connection that waits at a listener (accepting.h); no socket when there is none.
Result<Socket> accept_one(const Socket& listener);
// Whether a connect that was begun has succeeded; an error when it failed.
Result<bool> is_connected(const Socket& socket);

// Small messages leave at once; a host that has gone is noticed within a minute.
void tune_for_data(const Socket& socket);
// No more is sent; what was sent is still delivered.
void end_sending(const Socket& socket);
// How much of what was sent the peer's kernel has not acknowledged, where the system can tell.
std::optional<std::size_t> unacknowledged_bytes(const Socket& socket);
// Whether what was sent has been repeated, for 0.6 s at least, and nothing of it acknowledged: not
// even the kernel of the peer's host answers on this connection.
bool is_unanswered(const Socket& socket);
// The last answer of the peer's kernel on a connection.
struct Answered {
  bool all;              // It has acknowledged all that was sent.
  std::int64_t last_ms;  // How long ago its last acknowledgement came.
};
// Nothing where the system cannot tell.
std::optional<Answered> answered(const Socket& socket);
// Whether the network interface of the socket's own address is down or has no link.
bool is_link_down(const Socket& socket);
// Reads and drops what has come; true when the peer has ended or the connection is broken.
bool discard_received(const Socket& socket);

}  // namespace unisono::sys
