// The memory that one end of a connection exposes, for wires whose owner's end stores the bytes.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "transport/transport.h"

namespace unisono::transport {

// What a peer does with exposed memory.
enum class Access : std::uint8_t { put, get };

class ExposedMemory {
 public:
  // What rank `self` exposes to rank `peer`.
  ExposedMemory(int self, int peer) : self_(self), peer_(peer) {}
  // Keys count up from `before`, which no other end should share, so that a key means nothing
  // elsewhere.
  void start_keys(std::uint64_t before) { last_key_ = before; }
  void start_keys_at_random();
  bool has_keys() const { return last_key_ != 0; }

  Result<RemoteMemory> add(void* memory, std::size_t bytes);
  void remove(std::uint64_t key);
  void clear() { pieces_.clear(); }
  bool empty() const { return pieces_.empty(); }

  // Where the peer's `bytes` go, or those that it gets are; nothing of which is trusted: a peer
  // error unless this memory is exposed and holds them.
  Result<std::byte*> place(Access access, std::uint64_t key, std::uint64_t offset,
                           std::uint64_t bytes) const;

  // All of what a key names that place() knows.
  std::span<std::byte> whole(std::uint64_t key) const;

  std::size_t memory_bytes() const { return pieces_.capacity() * sizeof(Piece); }

 private:
  struct Piece {
    std::uint64_t key;
    std::byte* data;
    std::size_t bytes;
  };

  int self_;
  int peer_;
  std::uint64_t last_key_ = 0;
  std::vector<Piece> pieces_;
};

// Misuse for a GPU's memory, of which the host's processors would not load and store the first
// byte: the transport of that name is to expose it.
Status check_host_memory(std::string_view transport, int self, int peer, const void* memory,
                         std::size_t bytes);
// An end that exposes as much as it can exposes more.
Error too_much_exposed(int self, int peer);
// Rank `by` puts to or gets from a key that names nothing which `owner` exposes on this connection,
// or past the end of what it names. The errors are of the rank that is not this one, `peer`.
Error not_exposed(Access access, int by, int owner, int peer, std::uint64_t bytes);
Error past_exposed(Access access, int by, int owner, int peer, std::uint64_t bytes,
                   std::uint64_t offset, std::uint64_t there);
// Rank `self` withdrew memory while its peer's put or get was under way there.
Error withdrawn_under_way(Access access, int self, int peer);

}  // namespace unisono::transport
