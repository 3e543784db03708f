#include "transport/request.h"

#include "base/error.h"
#include "base/rank.h"
#include "base/wire.h"

namespace unisono::transport {

Status check_request(const ConnectionRequest& request) {
  for (const int rank : {request.self, request.peer})
    if (!Rank::among(rank, request.ranks))
      return misuse("cannot connect rank ", request.self, " to rank ", request.peer,
                    "; ranks are 0 to ", request.ranks - 1);
  if (request.self == request.peer)
    return misuse("rank ", request.self, " cannot connect to itself");
  return check_geometry(request.geometry);
}

Status check_geometry(const Geometry& geometry) {
  if (geometry.region_bytes > max_region_bytes)
    return misuse("a connection's region of ", geometry.region_bytes,
                  " bytes is too large; it must be at most ", max_region_bytes);
  if (geometry.signals < 0 || geometry.signals > max_signals)
    return misuse("a connection has ", geometry.signals, " signals; it must have 0 to ",
                  max_signals);
  return {};
}

namespace {

Status check_signal(const Geometry& geometry, int peer, const Signal& signal) {
  if (signal.index >= geometry.signals) [[unlikely]]
    return bug("there is no signal ", signal.index, " of rank ", peer, "; it has ",
               geometry.signals, " signals");
  return {};
}

}  // namespace

Status check_put(const Geometry& geometry, int peer, std::size_t bytes, std::size_t offset,
                 const Signal& signal) {
  if (bytes > geometry.region_bytes || offset > geometry.region_bytes - bytes) [[unlikely]]
    return bug("put of ", bytes, " bytes at offset ", offset, " to rank ", peer,
               " exceeds its region of ", geometry.region_bytes, " bytes");
  return check_signal(geometry, peer, signal);
}

Status check_put_to(const Geometry& geometry, int peer, const RemoteMemory& memory,
                    const Signal& signal) {
  if (memory.key == 0) [[unlikely]]
    return bug("a put to rank ", peer, " names memory that it does not expose");
  return check_signal(geometry, peer, signal);
}

Status check_get(int peer, const RemoteMemory& memory) {
  if (memory.key == 0) [[unlikely]]
    return bug("a get from rank ", peer, " names memory that it does not expose");
  return {};
}

Error geometry_mismatch(int peer, const Geometry& theirs, const Geometry& ours) {
  return peer_failure(
      FailureReason::mismatch, peer, "rank ", peer, " opened the connection with a region of ",
      theirs.region_bytes, " bytes, ", theirs.signals, " signals and layout ", theirs.layout,
      "; this rank opened it with ", ours.region_bytes, " bytes, ", ours.signals,
      " signals and layout ", ours.layout, "; set the same slot settings on all ranks");
}

Error peer_left(int peer) {
  return peer_failure(FailureReason::left, peer, "rank ", peer,
                      " left the communicator while this rank still waits for it");
}

Key derive_connection_key(const Key& job_key, std::string_view purpose, const ConnectionKey& key,
                          int low_rank, int high_rank) {
  WireWriter context;
  context.number(key.communicator);
  context.number(key.epoch);
  context.number(key.channel);
  context.number(static_cast<std::uint32_t>(low_rank));
  context.number(static_cast<std::uint32_t>(high_rank));
  return derive_key(job_key, purpose, {context.bytes()});
}

std::string describe(const ConnectionKey& key) {
  return str("communicator ", key.communicator, ", epoch ", key.epoch, ", channel ", key.channel);
}

Error no_descriptors(int self, int peer, const Error& why) {
  return environment_error("rank ", self, " cannot open its connection to rank ", peer, ": ",
                           why.message);
}

Error past_epoch(int peer, const ConnectionKey& key) {
  return peer_failure(FailureReason::left, peer, "rank ", peer, " refuses a connection on ",
                      describe(key),
                      ": that epoch is over there; it has left the communicator and goes on "
                      "without this rank");
}

}  // namespace unisono::transport
