// The memory that one end exposes, and the puts into it that its peer has been allowed.
//
// Some providers look a key up when a write begins and store its bytes later, so closing a
// registration keeps nothing out. A put is therefore offered by a message first. Its key and its
// place are checked here, and the answer tells the provider's key; the peer writes nothing else.
// Memory that no allowed put is due to is withdrawn at once, without a word to the peer.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <map>

#include "transport/exposed_memory.h"
#include "transport/ofi/endpoint.h"
#include "transport/ofi/message.h"

namespace unisono::transport::ofi {

class Landing {
 public:
  Landing(int self, int peer) : exposed_(self, peer) {}

  Result<RemoteMemory> expose(void* memory, std::size_t bytes);
  // The answer to an offer; a peer error where it must not put there. Memory is registered by the
  // first put that is allowed, and stays so until forget().
  Result<Note> allow(const Note& offer, Endpoint& endpoint);
  // Where the bytes of a get are; a peer error where there are none for the peer.
  Result<const std::byte*> source(const Note& get) const;
  // Nothing is allowed there any more. A key of 0 names all memory, here and below.
  void close(std::uint64_t key);
  // Whether a put that was allowed there has not arrived, when `arrived` writes into exposed memory
  // have, in order.
  bool is_due(std::uint64_t key, std::uint64_t arrived) const;
  void forget(std::uint64_t key);

  std::size_t memory_bytes() const {
    return exposed_.memory_bytes() + pieces_.size() * sizeof(Piece);
  }

 private:
  struct Piece {
    RegisteredMemory registered;
    std::uint64_t last = 0;  // write into exposed memory that was allowed here
  };

  ExposedMemory exposed_;
  std::map<std::uint64_t, Piece> pieces_;  // that were put to, by key
};

}  // namespace unisono::transport::ofi
