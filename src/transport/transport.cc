#include "transport/transport.h"

#include "base/error.h"

namespace unisono::transport {

Status Connection::write_peer(std::uint64_t, const void*, std::size_t) {
  return bug("the memory of rank ", peer_, " cannot be written through this connection");
}

}  // namespace unisono::transport
