// Bruck all-to-all: the block for the rank at distance j goes there by the powers of two that make
// up j. In step k every rank sends all blocks whose distance has bit k, packed into one message, to
// rank + 2^k. (Bruck, Ho, Kipnis, Upfal, Weathersby 1997.)
//
//   steps          ceil(log2 p)
//   bytes sent     b for each bit of each distance, about b (p / 2) log2 p      b: bytes of a block
//   bytes reduced  none
//   cost           ceil(log2 p) α + b (p / 2) log2 p β, and every block sent is copied twice
//
// Scratch: p blocks on their way, by distance, and twice p / 2 for a message packed and one
// received. A block is received into the output on its last hop, or in place at the end, when the
// input is no longer needed. Packing overwrites what the step before sent, which its receiver takes
// before it packs as well; one slot per connection.
#include <algorithm>

#include "algorithm/algorithms.h"
#include "algorithm/parts/cost_tally.h"
#include "algorithm/parts/group.h"
#include "algorithm/parts/powers.h"
#include "algorithm/request.h"
#include "plan/builder.h"

namespace unisono::algorithm {
namespace {

using plan::Location;

std::vector<int> distances_with_bit(int bit, int ranks) {
  std::vector<int> distances;
  for (int distance = 1; distance < ranks; ++distance)
    if (distance >> bit & 1) distances.push_back(distance);
  return distances;
}

// One rank's part on one channel: chunk `channel` of every block.
class Member {
 public:
  Member(const Request& request, int rank, int channel)
      : request_(request),
        ranks_(request.placement.ranks()),
        rank_(rank),
        channel_(channel),
        half_(static_cast<int>(distances_with_bit(0, ranks_).size())) {}

  int scratch_blocks() const { return ranks_ + 2 * half_; }
  void write(plan::ProgramBuilder& builder) const;

 private:
  Location at(plan::Buffer buffer, int block) const {
    return {buffer, std::int64_t{block} * request_.channels + channel_};
  }
  Location travelling(int distance) const { return at(plan::Buffer::scratch, distance); }
  Location packed(int i) const { return at(plan::Buffer::scratch, ranks_ + i); }
  Location received(int i) const { return at(plan::Buffer::scratch, ranks_ + half_ + i); }
  // For the rank at that distance, and from the rank which is this one's at that distance.
  Location raw(int distance) const { return at(plan::Buffer::input, (rank_ + distance) % ranks_); }
  Location final_place(int distance) const {
    return at(plan::Buffer::output, (rank_ - distance + ranks_) % ranks_);
  }

  Ready write_step(plan::ProgramBuilder& builder, const Ready& start, int bit) const;

  const Request& request_;
  int ranks_;
  int rank_;
  int channel_;
  int half_;  // most blocks in a message
};

Ready Member::write_step(plan::ProgramBuilder& builder, const Ready& start, int bit) const {
  const std::vector<int> distances = distances_with_bit(bit, ranks_);
  const int count = static_cast<int>(distances.size());
  // With several channels no blocks are neighbours.
  const int together = request_.channels == 1 ? count : 1;

  plan::BlockBuilder give = builder.block(channel_, (rank_ + (1 << bit)) % ranks_, -1);
  wait_for(give, start);
  for (int i = 0; i < count; ++i) {
    const int distance = distances[static_cast<std::size_t>(i)];
    const bool has_moved = distance % (1 << bit) != 0;
    give.copy(has_moved ? travelling(distance) : raw(distance), packed(i));
  }
  const plan::Dependency all_packed = done(give);
  for (int i = 0; i < count; i += together) give.send(packed(i), together);

  plan::BlockBuilder take = builder.block(channel_, -1, (rank_ - (1 << bit) + ranks_) % ranks_);
  wait_for(take, start);
  for (int i = 0; i < count; i += together) take.recv(received(i), together);
  wait_for(take, {all_packed});
  for (int i = 0; i < count; ++i) {
    const int distance = distances[static_cast<std::size_t>(i)];
    const bool arrives = !request_.in_place && distance < 2 << bit;
    take.copy(received(i), arrives ? final_place(distance) : travelling(distance));
  }
  return {done(give), done(take)};
}

void Member::write(plan::ProgramBuilder& builder) const {
  if (!request_.in_place) builder.block(channel_, -1, -1).copy(raw(0), final_place(0));
  if (ranks_ == 1) return;
  builder.need_scratch(scratch_blocks());
  Ready ready;
  for (int bit = 0; bit < ceil_log2(ranks_); ++bit) ready = write_step(builder, ready, bit);
  if (!request_.in_place) return;
  plan::BlockBuilder last = builder.block(channel_, -1, -1);
  wait_for(last, ready);
  for (int distance = 1; distance < ranks_; ++distance)
    last.copy(travelling(distance), final_place(distance));
}

int most_blocks(int ranks) {
  int most = 1;
  for (int bit = 0; bit < ceil_log2(ranks); ++bit)
    most = std::max(most, static_cast<int>(distances_with_bit(bit, ranks).size()));
  return most;
}

plan::Header header(const Request& request) {
  const int together = request.channels == 1 ? most_blocks(request.placement.ranks()) : 1;
  return header_for(request, request.channels, together);
}

plan::RankProgram program(const Request& request, int rank) {
  plan::ProgramBuilder builder(rank);
  for (int channel = 0; channel < request.channels; ++channel)
    Member(request, rank, channel).write(builder);
  return builder.take();
}

Cost cost(const Request& request, double block_bytes) {
  const int ranks = request.placement.ranks();
  CostTally tally(request.placement);
  for (int bit = 0; bit < ceil_log2(ranks); ++bit) {
    const double bytes = block_bytes * static_cast<double>(distances_with_bit(bit, ranks).size());
    for (int rank = 0; rank < ranks; ++rank) tally.send(rank, (rank + (1 << bit)) % ranks, bytes);
    tally.end_phase();
  }
  Cost cost = tally.total(0);
  // Each message is put together of blocks that lie apart, and taken apart again.
  cost.bytes_copied = 2 * cost.bytes_sent;
  return cost;
}

}  // namespace

const Entry bruck_all_to_all = {
    .name = "bruck",
    .collective = Collective::all_to_all,
    .summary = "In step k every rank sends on all blocks that have to go 2^k further.",
    .source = "Bruck, Ho, Kipnis, Upfal, Weathersby 1997",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header,
    .program = program,
    .cost = cost,
    .symmetry = by_rotation,
};

}  // namespace unisono::algorithm
