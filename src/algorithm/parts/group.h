// Writing an algorithm over a group of ranks, so that it serves a whole communicator and one level
// of a hierarchical algorithm alike.
//
// A group has members 0 .. size-1, each with one block. What a block is, is up to the caller: a
// BlockMap says which chunks of which buffer member i's block covers. Algorithms name members and
// blocks only, and let the map name ranks and chunks.
//
// Two kinds of collective over a group; every algorithm that a hierarchical one can use offers
//
//   Ready x_all_gather(Phase&, Location own, const BlockMap& blocks);
//     Before: the chunks of `own` are this member's block (possibly the raw input; equal to
//     blocks.at(me) when it is in place already). After: every block is in `blocks`.
//   Ready x_reduce_scatter(Phase&, const BlockMap& contributions, Location result);
//     Before: contributions.at(i) is what this member gives to member i's block; only read, raw
//     data if it lies in the input. After: `result` holds the reduction of all members'
//     contributions to this member's block. May equal contributions.at(me).
//
// and returns what must be complete for the "after" to hold. Nothing in it starts before
// phase.start. Blocks may be of unequal size, also empty (an empty one is never sent).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/builder.h"

namespace unisono::algorithm {

// Steps of thread blocks, of the rank whose program is written, that must be complete.
using Ready = std::vector<plan::Dependency>;

inline void wait_for(plan::BlockBuilder& block, const Ready& ready) {
  for (const plan::Dependency& one : ready) block.after(one.thread_block, one.steps);
}
// All that `block` has so far.
inline plan::Dependency done(const plan::BlockBuilder& block) {
  return {block.index(), block.steps()};
}

class Group {
 public:
  // Member i is rank i of a communicator of `ranks`; takes no memory.
  static Group all(int ranks, int me) { return Group({}, ranks, me); }
  // Member i is rank ranks[i]; this rank is ranks[me].
  static Group of(std::vector<int> ranks, int me) {
    const int size = static_cast<int>(ranks.size());
    return Group(std::move(ranks), size, me);
  }

  int size() const { return size_; }
  int me() const { return me_; }
  int rank(int member) const {
    return ranks_.empty() ? member : ranks_[static_cast<std::size_t>(member)];
  }
  // Modulo the size: member_at(me() + 1) is the next member, member_at(me() - 1) the one before.
  int member_at(std::int64_t position) const {
    const std::int64_t member = position % size_;
    return static_cast<int>(member < 0 ? member + size_ : member);
  }

 private:
  Group(std::vector<int> ranks, int size, int me)
      : ranks_(std::move(ranks)), size_(size), me_(me) {}
  std::vector<int> ranks_;
  int size_;
  int me_;
};

// Consecutive chunks of a buffer: one message.
struct Run {
  plan::Location location;
  int count = 0;
};

// Where the blocks of a group lie in one buffer of this rank. Maps which differ only in the buffer
// and in a shift of all chunks cut the same blocks into the same runs, on every rank: that is what
// makes a sender's messages fit the receiver's.
class BlockMap {
 public:
  // Block i: `chunks` chunks from chunk first + i * stride.
  static BlockMap strided(plan::Buffer buffer, std::int64_t first, std::int64_t stride, int chunks);
  // Block i: chunks[i] chunks from chunk first[i]; chunks[i] may be 0.
  static BlockMap table(plan::Buffer buffer, std::vector<std::int64_t> first,
                        std::vector<int> chunks);

  // Messages of at most this many chunks from now on; without it, as long as memory is contiguous.
  // Short messages let an executor cut larger tiles (bandwidth), long ones save starts (latency).
  BlockMap& limit_message(int chunks);
  int message_limit() const { return message_limit_; }

  plan::Buffer buffer() const { return buffer_; }
  std::int64_t first_chunk(int block) const {
    return first_.empty() ? origin_ + block * stride_ : first_[static_cast<std::size_t>(block)];
  }
  int chunks(int block) const {
    return chunks_.empty() ? uniform_chunks_ : chunks_[static_cast<std::size_t>(block)];
  }
  plan::Location at(int block) const { return {buffer_, first_chunk(block)}; }

  // Blocks first, first + 1, ... first + count - 1, in this order, as the fewest messages.
  std::vector<Run> runs(int first, int count) const;
  // The same for the given blocks, in the given order.
  std::vector<Run> runs(std::span<const int> blocks) const;

 private:
  void append(std::vector<Run>& runs, int block) const;

  plan::Buffer buffer_ = plan::Buffer::output;
  std::int64_t origin_ = 0;
  std::int64_t stride_ = 1;
  int uniform_chunks_ = 1;
  int message_limit_ = 1 << 16;
  std::vector<std::int64_t> first_;
  std::vector<int> chunks_;
};

// One collective over a group, inside one rank's program.
struct Phase {
  plan::ProgramBuilder& program;
  const Group& group;
  // All connections of the phase. Two phases between the same pair of ranks need two channels.
  int channel = 0;
  Ready start{};
  // Scratch blocks (of chunks_per_block chunks) from this one on are free; what an algorithm takes
  // it adds here. A chunk keeps its place within its block in scratch, since that fixes its size.
  int first_scratch_block = 0;
  int chunks_per_block = 1;  // the plan's
  // Sends and receives of an exchange are in thread blocks of their own, so that tiles follow each
  // other on a long wire: in one block, each waits for the one before to arrive from the peer.
  bool overlaps_tiles = false;
};

}  // namespace unisono::algorithm
