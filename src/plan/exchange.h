// What a plan of at most two hops exchanges: which chunks each rank gives to which other, what is
// added in which order, and where it ends. Whatever the plan is called, and however its steps are
// divided among thread blocks, one that has an exchange may run by any kernel that carries it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "plan/plan.h"

namespace unisono::plan {

// Chunks of a rank's input or output, one after the other.
struct Chunks {
  std::int64_t first = 0;
  std::int64_t count = 0;

  bool empty() const { return count == 0; }
  bool overlaps(const Chunks& other) const {
    return first < other.first + other.count && other.first < first + count;
  }
  // These and the ones that follow them, or precede them.
  Chunks with(const Chunks& next) const {
    if (empty()) return next;
    return {first < next.first ? first : next.first, count + next.count};
  }
  bool operator==(const Chunks&) const = default;
};

// One rank's part. Lists of chunks have an entry for each rank, this one included.
//
// Hop 1: the rank gives chunks of its input to others. What it receives is its *result*: the sum of
// what several gave, or what one gave to be sent on; or it is stored as it comes.
// Hop 2: the rank sends its result to those in `forwards`, which store it.
struct RankExchange {
  std::vector<Chunks> gives;  // of the input; to itself: what it adds or keeps
  // In the output: where what each rank gives, or the result that it forwards, is stored in the
  // end; of itself: where its result is stored, or what it keeps. Where that rank sends nothing
  // here, the rank copies what it gives to it (the root of a broadcast keeps all segments).
  std::vector<Chunks> takes;
  std::vector<int> adds;      // ranks whose gifts make the result, in the order of the sum
  std::vector<int> forwards;  // ranks that get the result, ascending
  // Whether data may land in this rank's memory before what is there has been read, in a call that
  // is in place here and whose ranks store each chunk of data as soon as they have it. A chunk of a
  // sum has read the chunks that it is made of: it may land on one of those if only the rank that
  // adds it reads that one.
  bool overwrites_in_place = false;

  bool operator==(const RankExchange&) const = default;
};

struct Exchange {
  int chunks_per_block = 1;
  int hops = 1;
  bool reduces = false;
  bool has_equal_blocks = true;  // not in all_to_all_v, where each has a size of its own
  // Where nothing is added: what comes is copied on inside a rank, as from scratch, rather than
  // received where it stays.
  bool copies_received = false;
  std::vector<RankExchange> ranks;

  int size() const { return static_cast<int>(ranks.size()); }
  const RankExchange& part(int rank) const { return ranks[static_cast<std::size_t>(rank)]; }
  // Whether `from` sends anything to `to`, in either hop.
  bool sends(int from, int to) const;
  // Whether some rank sends to one that sends nothing back.
  bool is_one_way() const;
  // Whether each rank has its segment: what a rank gives to different ranks, itself included, does
  // not overlap, and where nothing is added, who gives gets none.
  bool has_segments() const;
  // Whether only whole blocks are given and stored.
  bool has_whole_blocks() const;
  std::int64_t longest_message() const;  // in chunks
  bool operator==(const Exchange&) const = default;
};

// The same for a call in place and out of place. None for plans of more hops and custom
// collectives, and where it is not decided: a plan of more than one channel or more ranks than
// this, one that needs more than two slots, one with one-sided steps or barriers, one of very many
// steps.
inline constexpr int exchange_max_ranks = 16;
std::optional<Exchange> exchange_of(const Plan& plan);
// Null for none.
std::shared_ptr<const Exchange> shared_exchange_of(const Plan& plan);

}  // namespace unisono::plan
