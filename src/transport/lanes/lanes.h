// The lanes between two ranks, and how puts become pieces for them.
//
// A lane carries bytes in order, at a pace of its own: a TCP stream, or an endpoint on a card. A
// rail is a network; lanes of one rail share its link. This is the one place that says how long a
// piece is and which lane takes it. Whoever owns the lanes moves the bytes, and tells how many are
// outstanding: given to a lane, and not known to have left it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace unisono::transport {

class Lanes {
 public:
  // The lanes use `rails` networks in turn. Where there are several, weights are learned.
  Lanes(std::size_t count, std::size_t rails) : lanes_(count), open_(count), learns_(rails > 1) {}

  std::size_t count() const { return lanes_.size(); }
  bool learns() const { return learns_; }

  // Where there are several lanes, a put up to this size stays whole, on the first of them that is
  // open, where signals are: less than the engine's smallest tile between nodes (32 KiB), so that
  // tiles use all rails; large enough for the cost of a system call to be small in comparison.
  static constexpr std::size_t most_whole_bytes = std::size_t{16} << 10;
  bool stays_whole(std::size_t put_bytes) const {
    return count() == 1 || put_bytes <= most_whole_bytes;
  }

  struct Piece {
    std::size_t lane;
    std::size_t bytes;
  };
  // The next piece of a put of `put_bytes`, of which `left` bytes have not been given; `backlog`
  // bytes in all wait to be given, these included. Nothing where a lane that is full now is the
  // better choice: ask again when it has taken something.
  std::optional<Piece> next(std::size_t put_bytes, std::size_t left, std::uint64_t backlog) const;
  // The lane with room on which so many bytes arrive first; for what is not cut.
  std::optional<std::size_t> soonest(std::size_t bytes) const;
  // A piece has been given. So many have been, over all lanes.
  void give(const Piece& piece);
  std::uint64_t pieces() const { return pieces_; }

  // What a lane's owner knows of it: whether it takes a piece, and how many bytes are outstanding.
  // Where weights are learned, it looks now and then while any are, and before it gives after a
  // pause. Time is any clock's that does not go back.
  void set_room(std::size_t lane, bool has_room) {
    lanes_[lane].has_room = has_room && is_open(lane);
  }
  void look(std::size_t lane, std::uint64_t outstanding_bytes, std::int64_t now_ns);
  std::uint64_t outstanding_bytes() const;

  // A lane that has ended takes nothing more.
  void close(std::size_t lane);
  // One that was closed takes pieces again; what was known of it is forgotten.
  void reopen(std::size_t lane);
  bool is_open(std::size_t lane) const { return lanes_[lane].is_open; }
  // So many are, and the first of them; where none is, any.
  std::size_t open() const { return open_; }
  std::size_t first() const;

  // Bytes a nanosecond; 1 for all where weights are not learned, or nothing is known yet.
  double weight(std::size_t lane) const;

 private:
  struct Lane {
    std::uint64_t outstanding_bytes = 0;
    bool has_room = true;  // never where it is not open
    bool is_open = true;
    // What left it in the time in which it had something to carry; older figures count less.
    double carried_bytes = 0;
    double busy_ns = 0;
    std::int64_t looked_ns = 0;
    bool has_begun = false;  // to drain, since it was empty
  };
  void learn(std::size_t lane, std::uint64_t left_bytes, bool was_busy, std::int64_t now_ns);
  std::optional<Piece> next_share(std::size_t left) const;
  std::optional<Piece> next_of_long(std::size_t put_bytes, std::uint64_t backlog) const;
  double mean_rate() const;
  double sum_of_weights() const;
  std::size_t in_turn(std::size_t step) const { return (turn_ + step) % count(); }

  std::vector<Lane> lanes_;
  std::size_t open_;
  bool learns_;
  double usual_ = 0;  // mean_rate() at the last look
  std::uint64_t pieces_ = 0;
  std::size_t turn_ = 0;  // of lanes that are equally good, the first from here on is taken
};

}  // namespace unisono::transport
