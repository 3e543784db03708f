#include "transport/exposed_memory.h"

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/str.h"
#include "sys/cuda/device.h"

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

Result<std::byte*> ExposedMemory::place(Access access, std::uint64_t key, std::uint64_t offset,
                                        std::uint64_t bytes) const {
  const auto piece = std::ranges::find(pieces_, key, &Piece::key);
  if (piece == pieces_.end()) return not_exposed(access, peer_, self_, peer_, bytes);
  if (bytes > piece->bytes || offset > piece->bytes - bytes)
    return past_exposed(access, peer_, self_, peer_, bytes, offset, piece->bytes);
  return piece->data + offset;
}

std::span<std::byte> ExposedMemory::whole(std::uint64_t key) const {
  const auto piece = std::ranges::find(pieces_, key, &Piece::key);
  return {piece->data, piece->bytes};
}

Status check_host_memory(std::string_view transport, int self, int peer, const void* memory,
                         std::size_t bytes) {
  const sys::cuda::Driver* const driver = sys::cuda::loaded_driver();
  if (driver == nullptr) return {};
  const sys::cuda::PointerKind kind = sys::cuda::kind_of(*driver, memory);
  if (!kind.is_device || sys::cuda::is_managed(*driver, memory)) return {};
  return misuse("rank ", self, " exposes ", bytes, " bytes at 0x",
                hex(reinterpret_cast<std::uintptr_t>(memory)), " to rank ", peer,
                ", which are memory of CUDA device ", kind.ordinal, "; the transport ", transport,
                " reaches host memory alone: use host memory, or make the call on a stream");
}

Error too_much_exposed(int self, int peer) {
  return misuse("rank ", self, " exposes ", Connection::most_exposed, " pieces of memory to rank ",
                peer, ", which is the most that a connection has; withdraw one first");
}

Error past_exposed(Access access, int by, int owner, int peer, std::uint64_t bytes,
                   std::uint64_t offset, std::uint64_t there) {
  return peer_error(peer, "rank ", by, access == Access::put ? " put " : " got ", bytes,
                    " bytes at offset ", offset, " of memory that rank ", owner,
                    " exposes, which has ", there, " bytes");
}

Error not_exposed(Access access, int by, int owner, int peer, std::uint64_t bytes) {
  return peer_error(peer, "rank ", by, access == Access::put ? " put " : " got ", bytes,
                    access == Access::put ? " bytes into" : " bytes from", " memory that rank ",
                    owner,
                    " does not expose to it; it was withdrawn, or its key is of another "
                    "connection");
}

Error withdrawn_under_way(Access access, int self, int peer) {
  const bool puts = access == Access::put;
  return peer_error(peer, "rank ", peer, puts ? " was putting into" : " was getting from",
                    " memory that rank ", self, " withdrew; withdraw it when all ",
                    puts ? "puts have arrived" : "gets are complete");
}

}  // namespace unisono::transport
