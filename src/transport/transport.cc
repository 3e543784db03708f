#include "transport/transport.h"

#include "base/error.h"

namespace unisono::transport {

Status Connection::reserve(std::size_t, std::size_t) { return {}; }

Status Connection::reserve_at_peer(std::size_t, std::size_t) { return {}; }

Result<RemoteMemory> Connection::expose(void*, std::size_t) { return RemoteMemory{}; }

void Connection::withdraw(const RemoteMemory&) {}

Result<bool> Connection::try_put_to(const RemoteMemory&, std::size_t, const void*,
                                    std::size_t bytes, Signal) {
  return bug("a put of ", bytes, " bytes to rank ", peer_,
             " names memory of its own, which this transport does not reach");
}

Result<bool> Connection::try_get(const RemoteMemory&, std::size_t, void*, std::size_t bytes) {
  return bug("a get of ", bytes, " bytes from rank ", peer_,
             " names memory of its own, which this transport does not reach");
}

Status check_options(const TransportOptions& options) {
  if (options.key == Key{}) return bug("a transport was made without the job's key");
  return {};
}

}  // namespace unisono::transport
