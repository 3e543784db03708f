#include "transport/request.h"

#include <charconv>

#include "base/error.h"

namespace unisono::transport {

Status check_request(const ConnectionRequest& request) {
  if (request.self < 0 || request.peer < 0)
    return misuse("a connection from rank ", request.self, " to rank ", request.peer,
                  ": ranks must not be negative");
  if (request.self == request.peer)
    return misuse("rank ", request.self, " must not connect to itself");
  const Geometry& geometry = request.geometry;
  if (geometry.region_bytes > max_region_bytes)
    return misuse("a connection's region of ", geometry.region_bytes, " bytes exceeds ",
                  max_region_bytes);
  if (geometry.signals < 0 || geometry.signals > max_signals)
    return misuse("a connection with ", geometry.signals, " signals; 0 to ", max_signals,
                  " are possible");
  return {};
}

Status check_put(const Geometry& geometry, int peer, std::size_t bytes, std::size_t offset,
                 const Signal& signal) {
  if (bytes > geometry.region_bytes || offset > geometry.region_bytes - bytes) [[unlikely]]
    return bug("put of ", bytes, " bytes at offset ", offset, " to rank ", peer,
               " leaves its region of ", geometry.region_bytes, " bytes");
  if (signal.index >= geometry.signals) [[unlikely]]
    return bug("signal ", signal.index, " of rank ", peer, "; it has ", geometry.signals);
  return {};
}

Error geometry_mismatch(int peer, const Geometry& theirs, const Geometry& ours) {
  return peer_error(peer, "rank ", peer, " made the connection with a region of ",
                    theirs.region_bytes, " bytes, ", theirs.signals, " signals and layout ",
                    theirs.layout, ", this rank with ", ours.region_bytes, ", ", ours.signals,
                    " and ", ours.layout, "; the slot settings of all ranks must be the same");
}

std::string describe(const ConnectionKey& key) {
  char hex[16];
  const auto end = std::to_chars(hex, hex + sizeof hex, key.communicator, 16).ptr;
  return str("communicator ", std::string_view(hex, static_cast<std::size_t>(end - hex)),
             ", epoch ", key.epoch, ", channel ", key.channel);
}

}  // namespace unisono::transport
