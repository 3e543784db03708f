// Non-blocking TCP sockets, as the data path uses them. (Named socket.h, this file would hide the
// system's <sys/socket.h>.)
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <span>
#include <utility>

struct iovec;

namespace unisono::sys {

// Owns a descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
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

// As many descriptors as the system allows this process: each stream takes one.
void raise_descriptor_limit();

// The next connection that waits at a listener; no socket when there is none.
Result<Socket> accept_one(const Socket& listener);
// Whether a connect that was begun has succeeded; an error when it failed.
Result<bool> is_connected(const Socket& socket);

// Small messages leave at once; a host that has gone is noticed within a minute.
void tune_for_data(const Socket& socket);
// No more is sent; what was sent is still delivered.
void end_sending(const Socket& socket);
// Whether the peer's kernel has everything that was sent.
bool all_acknowledged(const Socket& socket);
// Reads and drops what has come; true when the peer has ended or the connection is broken.
bool discard_received(const Socket& socket);

}  // namespace unisono::sys
