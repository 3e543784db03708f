// The lanes between two ranks, and how puts become pieces for them.
//
// A lane carries bytes in order, at a pace of its own: a TCP stream, or an endpoint on a card. A
// rail is a network; lanes of one rail share its link. This is the one place that says how long a
// piece is and which lane takes it. Whoever owns the lanes moves the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unisono::transport {

class Lanes {
 public:
  // The lanes use `rails` networks in turn.
  Lanes(std::size_t count, std::size_t rails) : count_(count), rails_(rails) {}

  std::size_t count() const { return count_; }
  // Where there are several lanes, a put up to this size stays whole, on the first of them: less
  // than the engine's smallest tile between nodes (32 KiB), so that tiles use all rails; large
  // enough for the cost of a system call to be small in comparison.
  static constexpr std::size_t most_whole_bytes = std::size_t{16} << 10;
  bool stays_whole(std::size_t put_bytes) const {
    return count_ == 1 || put_bytes <= most_whole_bytes;
  }

  // The lane of the next piece, and the length of a piece of such a put.
  std::size_t next() const { return static_cast<std::size_t>(pieces_ % count_); }
  std::size_t piece_bytes(std::size_t put_bytes) const;
  // The lane next() has taken a piece.
  void give() { ++pieces_; }
  // Pieces given so far. Their numbers are 0, 1, ... over all lanes.
  std::uint64_t pieces() const { return pieces_; }

 private:
  // Small enough that two lanes share a slot of 512 KiB evenly.
  static constexpr std::size_t most_piece_bytes = std::size_t{256} << 10;

  std::size_t count_;
  std::size_t rails_;
  std::uint64_t pieces_ = 0;
};

}  // namespace unisono::transport
