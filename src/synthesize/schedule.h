// Who sends which chunk to whom and when: what synthesis finds, before it is a plan.
#pragma once

#include <unisono/result.h>
#include <unisono/types.h>

#include <cstdint>
#include <vector>

#include "simulate/time.h"
#include "synthesize/link_graph.h"

namespace unisono::synthesize {

using simulate::Time;

// Chunk number rank * chunks + i is the i-th of a rank's own: what it gives in an all-gather, and
// what it is to get the sum of in a reduce-scatter.
struct Transfer {
  std::int32_t chunk = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
  bool reduces = false;  // added to what is there, otherwise stored
  Time start = 0;
  Time end = 0;
  bool operator==(const Transfer&) const = default;
};

struct Schedule {
  Collective collective = Collective::all_gather;
  int ranks = 1;
  int chunks = 1;                   // a rank's own
  std::vector<Transfer> transfers;  // by start
  Time duration = 0;
  Time bound = 0;  // no schedule of such chunks on these links is shorter; 0: not known
};

struct Goal {
  Collective collective = Collective::all_gather;
  int chunks = 1;
  std::int64_t chunk_bytes = 1 << 20;
  std::uint64_t seed = 1;
  int tries = 4;  // the shortest of so many schedules is taken
};

// A schedule of more transfers is refused: ranks * (ranks - 1) * chunks, twice for an all-reduce.
inline constexpr std::int64_t max_transfers = std::int64_t{1} << 23;
inline constexpr int max_tries = 1 << 10;

// The greedy matcher. All-gather, reduce-scatter (an all-gather over the links reversed, backwards
// in time) or all-reduce (both, one after the other). The same goal on the same graph gives the
// same schedule everywhere.
Result<Schedule> synthesize(const LinkGraph& graph, const Goal& goal);

}  // namespace unisono::synthesize
