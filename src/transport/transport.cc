#include "transport/transport.h"

#include "base/error.h"

namespace unisono::transport {

Status Connection::reserve(std::size_t, std::size_t) { return {}; }

Status Connection::reserve_at_peer(std::size_t, std::size_t) { return {}; }

Status Connection::write_peer(std::uint64_t, const void*, std::size_t) {
  return bug("the memory of rank ", peer_, " cannot be written through this connection");
}

Status check_options(const TransportOptions& options) {
  if (options.key == Key{}) return bug("a transport was made without the job's key");
  return {};
}

}  // namespace unisono::transport
