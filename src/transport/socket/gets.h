// Gets of one end that are under way, and those of its peer that it has not begun to answer.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>

#include "transport/socket/frame.h"
#include "transport/socket/ring.h"

namespace unisono::transport::socket {

class Gets {
 public:
  explicit Gets(int peer) : peer_(peer) {}

  // Of one end, so many are under way at most.
  static constexpr std::uint64_t most = 64;

  bool has_room() const { return ours_.size() < most; }
  // They are numbered 0, 1, ... at both ends. One of no bytes has no number and always has room.
  void add(std::byte* destination, std::size_t bytes);
  // One that counts and never completes.
  void add_dropped() { ++started_; }
  // Where an answer's bytes go, nothing of which is trusted. Each byte of a get is let in once, so
  // that none comes when it is complete.
  Result<std::byte*> place(const Frame& answer);
  // What place() let in comes again: its stream ended before it was confirmed.
  void take_back(const Frame& answer);
  // All bytes of a frame that place() let in are there, and are confirmed.
  void arrived(const Frame& answer);
  // Nothing is let in any more.
  void clear() { ours_.clear(); }

  std::uint64_t started() const { return started_; }
  std::uint64_t completed() const { return completed_; }

  // A get of the peer; a peer error where it has more under way than it may.
  Status ask(const Frame& get);
  // Those in order, until they are answered.
  const Ring<Frame>& asked() const { return asked_; }
  void answered() { asked_.pop(); }

  std::size_t memory_bytes() const { return ours_.memory_bytes() + asked_.memory_bytes(); }

 private:
  struct Get {
    std::byte* destination;
    std::size_t bytes;
    std::size_t let_in;
    std::size_t arrived;
    std::uint64_t empty_behind;  // gets of no bytes that were started after it, before the next
  };

  int peer_;
  Ring<Get> ours_;
  std::uint64_t started_ = 0;
  std::uint64_t completed_ = 0;
  Ring<Frame> asked_;
};

}  // namespace unisono::transport::socket
