// Which connections are sealed.
#pragma once

#include <unisono/result.h>

#include "sys/seal.h"
#include "sys/tcp_socket.h"

namespace unisono::transport::socket {

struct WirePolicy {
  sys::Protection between_hosts = sys::Protection::none;
  bool protects_loopback = false;

  // How frames of a connected socket are protected.
  Result<sys::Protection> of(const sys::Socket& socket) const;
};

// The two ends of a connection would protect it differently.
Error protection_mismatch(int peer, sys::Protection theirs, sys::Protection ours);

}  // namespace unisono::transport::socket
