#include "algorithm/parts/ring_walk.h"

#include <algorithm>

#include "algorithm/parts/sequence.h"

namespace unisono::algorithm {
namespace {

// Ranks of one node that follow each other with numbers that rise, or fall, by one.
struct Piece {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

class RegularWalk {
 public:
  RegularWalk(plan::BlockBuilder& block, const Ring& ring, std::int64_t first, const WalkStep& what)
      : block_(block),
        what_(what),
        ranks_(ring.size()),
        per_node_(ring.ranks_per_node()),
        shift_(ring.shift() % per_node_),
        direction_(ring.is_backward() ? 1 : -1),
        at_(((ring.is_backward() ? ring.size() - 1 - first : first) % ranks_ + ranks_) % ranks_) {}

  void write(std::int64_t count) {
    if (shift_ == 0) return write_piece({at_, count}, 0);
    while (count > 0 && !at_first_of_node()) count -= write_next(count);
    const std::int64_t nodes = count / per_node_;
    if (nodes > 1) {
      write_nodes(nodes);
      count -= nodes * per_node_;
    }
    while (count > 0) count -= write_next(count);
  }

 private:
  bool at_first_of_node() const { return at_ % per_node_ == (direction_ > 0 ? 0 : per_node_ - 1); }

  Piece next_piece() const {
    const std::int64_t local = (at_ % per_node_ + shift_) % per_node_;
    const std::int64_t count = direction_ > 0
                                   ? (local >= shift_ ? per_node_ - local : shift_ - local)
                                   : (local >= shift_ ? local - shift_ + 1 : local + 1);
    return {at_ / per_node_ * per_node_ + local, count};
  }

  void advance(std::int64_t count) { at_ = modulo(at_ + direction_ * count, ranks_); }

  std::int64_t write_next(std::int64_t most) {
    Piece piece = next_piece();
    piece.count = std::min(piece.count, most);
    write_piece(piece, 0);
    advance(piece.count);
    return piece.count;
  }

  // A whole node is two pieces, and the next node the same, further on.
  void write_nodes(std::int64_t nodes) {
    block_.loop(nodes);
    for (int i = 0; i < 2; ++i) {
      const Piece piece = next_piece();
      write_piece(piece, direction_ * per_node_);
      advance(piece.count);
    }
    block_.end_loop();
    advance((nodes - 1) * per_node_);
  }

  // `node_shift`: in a loop around it, how far on the next iteration is; 0 without one.
  void write_piece(const Piece& piece, std::int64_t node_shift) {
    if (piece.count == 0) return;
    const std::int64_t chunks = ranks_ * what_.channels;
    plan::Index index(piece.first * what_.channels + what_.channel);
    const std::size_t depth = node_shift != 0 ? 1 : 0;
    if (node_shift != 0) index.coefficient[0] = modulo(node_shift * what_.channels, chunks);
    if (piece.count > 1) index.coefficient[depth] = modulo(direction_ * what_.channels, chunks);
    if (!index.is_constant()) index.modulus = chunks;
    plan::Step step{.operation = what_.operation};
    (plan::writes_destination(what_.operation) ? step.destination : step.source) = {what_.buffer,
                                                                                    index};
    if (piece.count > 1) block_.loop(piece.count);
    block_.step(std::move(step));
    if (piece.count > 1) block_.end_loop();
  }

  static std::int64_t modulo(std::int64_t value, std::int64_t modulus) {
    return (value % modulus + modulus) % modulus;
  }

  plan::BlockBuilder& block_;
  const WalkStep& what_;
  const std::int64_t ranks_, per_node_, shift_;
  const int direction_;
  std::int64_t at_;  // place in the order of ranks
};

}  // namespace

void write_walk(plan::BlockBuilder& block, const Ring& ring, std::int64_t first, std::int64_t count,
                const WalkStep& what) {
  if (ring.ranks_per_node() > 0) return RegularWalk(block, ring, first, what).write(count);
  StepList steps;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t chunk = std::int64_t{ring.rank_at(first - i)} * what.channels + what.channel;
    const Run run{{what.buffer, chunk}, 1};
    if (what.operation == plan::Operation::recv_copy_send)
      steps.recv_copy_send(run);
    else
      steps.recv_reduce_send(run);
  }
  steps.write_to(block, std::int64_t{ring.size()} * what.channels);
}

}  // namespace unisono::algorithm
