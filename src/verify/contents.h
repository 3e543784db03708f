// What a chunk of memory holds, and what a collective puts there and asks for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "verify/id_table.h"
#include "verify/rank_sets.h"
#include "verify/verify.h"

namespace unisono::verify {

// How contributions were added: equal ids are equal expressions, up to the order of two operands,
// and so give the same bits on any rank. 0 is a chunk that nothing has written.
using Sum = std::int32_t;
inline constexpr Sum unwritten = 0;
inline constexpr Sum plain = 1;  // data that is moved, never added

struct Value {
  // Which data: see Collective's comment at Contents. Sums add only data of one position.
  std::int64_t position = -1;
  Sum sum = unwritten;
  std::int32_t event = -1;  // what wrote it; only while a counterexample is being recorded
};

class Contents;

// Interned sums. A raw contribution (as the user gave it) and a contribution that was read (and
// pre-multiplied) differ.
class Sums {
 public:
  // Contributions are numbered; in collectives with a fixed meaning a rank has one.
  explicit Sums(int contributions);

  Sum raw(int rank) const { return 1 + 2 * rank; }
  bool is_raw(Sum sum) const {
    return sum != unwritten && sum <= 2 * contributions_ && sum % 2 == 1;
  }
  Sum read(Sum raw) const { return raw + 1; }

  // -1 if both hold a contribution of the same rank.
  Sum add(Sum a, Sum b);
  RankSets::Id ranks_of(Sum sum) const { return entry(sum).ranks; }
  RankSets& sets() { return sets_; }
  const RankSets& sets() const { return sets_; }
  // In the order of additions, with ranks, or input chunks, as `contents` has them: "((0+1)+2)",
  // "(input[0] of rank 0+input[1] of rank 0)"; long ones are cut.
  std::string describe(Sum sum, const Contents& contents) const;
  std::size_t memory_bytes() const;

 private:
  struct Entry {
    Sum left;
    Sum right;
    RankSets::Id ranks;
  };
  const Entry& entry(Sum sum) const { return entries_[static_cast<std::size_t>(sum)]; }

  int contributions_;
  RankSets sets_;
  std::vector<Entry> entries_;  // by sum
  IdTable by_operands_;
};

// The meaning of a collective. A position names data across ranks:
//   all_reduce, reduce            chunk of the block
//   reduce_scatter                chunk of all blocks, block after block
//   all_gather, gather            (source rank, chunk)
//   broadcast                     chunk of the root's block
//   scatter                       (destination rank, chunk)
//   all_to_all, all_to_all_v      (source rank, destination rank, chunk)
//   custom                        chunk of a block; which data it is, the contribution says
class Contents {
 public:
  // `conditions`: of a custom collective, else unused.
  explicit Contents(const plan::Header& header, const Conditions* conditions = nullptr)
      : header_(&header), conditions_(conditions) {}

  bool is_custom() const { return header_->collective == Collective::custom; }
  bool adds() const { return is_custom() || is_reduction(header_->collective); }
  int contributions() const;
  // Which contribution a rank's input chunk is.
  int contribution(int rank, std::int64_t chunk) const;
  // The contributions that output chunk `chunk` must be the sum of. Only where required() is given.
  RankSets::Id required_set(int rank, std::int64_t chunk, RankSets& sets) const;
  // Position of the data in input chunk `chunk` at the start; -1: none.
  std::int64_t initial(int rank, std::int64_t chunk) const;
  // Position of the data that output chunk `chunk` must hold at the end; -1: any.
  std::int64_t required(int rank, std::int64_t chunk) const;
  // "chunk 2 of rank 3's input".
  std::string describe(std::int64_t position) const;
  // Contributions in words: "rank 0-3, 7"; of a custom collective "input[1] of rank 3 + input[0] of
  // rank 4", and "nothing" for none. Long ones are cut.
  std::string describe_contributions(RankSets::Id set, const RankSets& sets) const;
  // The data at a position that is the sum of `set`: "chunk 2 of rank 0-3".
  std::string describe_sum(std::int64_t position, RankSets::Id set, const RankSets& sets) const;
  // "only rank 2, the root, has an input", for a buffer that only the root has; "" for any other.
  std::string only_the_root_has(plan::Buffer buffer) const;

 private:
  friend class Sums;
  // "3"; of a custom collective "input[1] of rank 3".
  std::string contribution_name(int contribution) const;

  const plan::Header* header_;
  const Conditions* conditions_;
};

}  // namespace unisono::verify
