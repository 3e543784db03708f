#include "transport/exposed_memory.h"

#include <algorithm>
#include <random>

#include "base/error.h"

namespace unisono::transport {

void ExposedMemory::start_keys_at_random() {
  std::random_device random;
  start_keys(std::uint64_t{random()} << 32 | random() >> 1 | 1);
}

Result<RemoteMemory> ExposedMemory::add(void* memory, std::size_t bytes) {
  if (pieces_.size() == Connection::most_exposed) return too_much_exposed(self_, peer_);
  pieces_.push_back({.key = ++last_key_, .data = static_cast<std::byte*>(memory), .bytes = bytes});
  return RemoteMemory{.key = last_key_, .address = reinterpret_cast<std::uint64_t>(memory)};
}

void ExposedMemory::remove(std::uint64_t key) {
  std::erase_if(pieces_, [key](const Piece& piece) { return piece.key == key; });
}

Result<std::byte*> ExposedMemory::place(std::uint64_t key, std::uint64_t offset,
                                        std::uint64_t bytes) const {
  const auto piece = std::ranges::find(pieces_, key, &Piece::key);
  if (piece == pieces_.end()) return not_exposed(peer_, self_, peer_, bytes);
  if (bytes > piece->bytes || offset > piece->bytes - bytes)
    return past_exposed(peer_, self_, peer_, bytes, offset, piece->bytes);
  return piece->data + offset;
}

std::span<std::byte> ExposedMemory::whole(std::uint64_t key) const {
  const auto piece = std::ranges::find(pieces_, key, &Piece::key);
  return {piece->data, piece->bytes};
}

Error too_much_exposed(int self, int peer) {
  return misuse("rank ", self, " exposes ", Connection::most_exposed, " pieces of memory to rank ",
                peer, ", which is the most that a connection has; withdraw one first");
}

Error past_exposed(int by, int owner, int peer, std::uint64_t bytes, std::uint64_t offset,
                   std::uint64_t there) {
  return peer_error(peer, "rank ", by, " put ", bytes, " bytes at offset ", offset,
                    " of memory that rank ", owner, " exposes, which has ", there, " bytes");
}

Error not_exposed(int by, int owner, int peer, std::uint64_t bytes) {
  return peer_error(peer, "rank ", by, " put ", bytes, " bytes into memory that rank ", owner,
                    " does not expose to it; it was withdrawn, or its key is of another "
                    "connection");
}

}  // namespace unisono::transport
