// Gets of one end that are under way. The peer answers each with remote writes to its destination,
// as if it had offered a put there, and tells which of its writes is the last one.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <deque>

#include "transport/ofi/endpoint.h"
#include "transport/ofi/message.h"
#include "transport/transport.h"

namespace unisono::transport::ofi {

class Gets {
 public:
  explicit Gets(int peer) : peer_(peer) {}

  // Of one end, so many are under way at most.
  static constexpr std::size_t most = 64;

  bool has_room() const { return under_way_.size() < most; }
  // What the peer is to be told, of whose writes in place so many have arrived. The destination
  // stays registered until the get is complete.
  Note add(RegisteredMemory destination, const RemoteMemory& memory, std::size_t offset,
           std::size_t bytes, std::uint64_t in_place);
  // One of no bytes, which the peer is not told.
  void add_empty();
  // One that counts and never completes.
  void add_dropped() { ++started_; }
  // The peer has begun to answer one; a peer error where none is under way that waits for this, or
  // where the answer cannot bring all its bytes.
  Status answered(const Note& note);
  // So many of the peer's writes into exposed memory and to destinations have arrived, in order.
  void arrived(std::uint64_t in_place);
  // Whether bytes may still come.
  bool are_due() const { return !under_way_.empty(); }
  // Nothing of them is awaited any more.
  void forget() { under_way_.clear(); }

  std::uint64_t started() const { return started_; }
  std::uint64_t completed() const { return completed_; }
  std::size_t memory_bytes() const { return under_way_.size() * sizeof(Get); }

 private:
  struct Get {
    RegisteredMemory destination;
    std::uint64_t bytes = 0;
    std::uint64_t least_last = 0;    // `last` is no earlier write, if all bytes come
    std::uint64_t last = 0;          // of the writes that answer it; 0: not told yet
    std::uint64_t empty_behind = 0;  // gets of no bytes that were started after it
  };

  int peer_;
  std::deque<Get> under_way_;
  std::uint64_t first_number_ = 0;  // of these; they are numbered 0, 1, ...
  std::uint64_t started_ = 0;
  std::uint64_t completed_ = 0;
};

}  // namespace unisono::transport::ofi
