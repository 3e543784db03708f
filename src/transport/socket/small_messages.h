// The few bytes that go back and forth on a socket before it is a stream of frames.
#pragma once

#include <unisono/result.h>

#include <array>
#include <span>
#include <vector>

#include "sys/tcp_socket.h"
#include "transport/socket/handshake.h"

namespace unisono::transport::socket {

class SmallMessages {
 public:
  SmallMessages() = default;
  explicit SmallMessages(sys::Socket socket) : socket_(std::move(socket)) {}

  const sys::Socket& socket() const { return socket_; }
  sys::Socket take_socket() { return std::move(socket_); }

  // Sends a message. It always fits the empty buffer of a new socket; one that does not is an
  // error.
  Status send(std::span<const std::byte> message);
  // The next message, of exactly `bytes`, and not a byte more; empty while it is not there.
  Result<std::span<const std::byte>> receive(std::size_t bytes);
  // Whether sending or receiving failed because the other side has gone.
  bool is_lost() const { return is_lost_; }
  // Whether the other side has closed, or sent what nobody asked for.
  bool has_gone();

 private:
  sys::Socket socket_;
  std::array<std::byte, max_handshake_bytes> buffer_{};
  std::size_t have_ = 0;
  bool is_lost_ = false;
};

}  // namespace unisono::transport::socket
