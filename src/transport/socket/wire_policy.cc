#include "transport/socket/wire_policy.h"

#include "base/error.h"
#include "base/try.h"
#include "sys/real_socket.h"

namespace unisono::transport::socket {

Result<sys::Protection> WirePolicy::of(const sys::Socket& socket) const {
  if (between_hosts == sys::Protection::none || protects_loopback) return between_hosts;
  UNISONO_ASSIGN(const sys::Address local, sys::local_address(socket.get()));
  UNISONO_ASSIGN(const sys::Address peer, sys::peer_address(socket.get()));
  return sys::stays_on_host(local, peer) ? sys::Protection::none : between_hosts;
}

Error protection_mismatch(int peer, sys::Protection theirs, sys::Protection ours) {
  return misuse("rank ", peer, " uses the wire protection '", sys::name(theirs),
                "' and this rank '", sys::name(ours),
                "'; UNISONO_WIRE must be the same on all ranks");
}

}  // namespace unisono::transport::socket
