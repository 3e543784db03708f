#include "algorithm/parts/pat_cost.h"

#include <algorithm>
#include <vector>

#include "algorithm/parts/cost_tally.h"

namespace unisono::algorithm {
namespace {

// Every member does the same, so the lengths of chains at one member are those at all: here, the
// messages before which a thread block or an area cannot be where the program has come to.
struct Chains {
  explicit Chains(const PatTrees& trees)
      : sender(static_cast<std::size_t>(trees.bits()) + 1),
        receiver(sender.size()),
        written(sender.size()),
        free(sender.size()),
        filled(sender.size()) {}

  // A message by 2^bit when what it carries is there; what arrives needs `place`.
  std::int64_t message(std::size_t bit, std::int64_t ready, std::int64_t place) {
    sender[bit] = std::max(sender[bit], ready);
    receiver[bit] = std::max({receiver[bit], sender[bit] + 1, place});
    longest = std::max(longest, sender[bit] + 1);
    return receiver[bit];
  }

  std::vector<std::int64_t> sender, receiver;  // thread blocks, by bit
  std::vector<std::int64_t> written, free;     // areas: data there; may be written anew
  std::vector<bool> filled;
  std::int64_t copier = 0;  // the thread block that packs or unpacks
  std::int64_t longest = 0;
};

std::size_t area_of(const PatTrees& trees, int offset) {
  return static_cast<std::size_t>(pat_level(offset, trees.lane_bit()));
}

Cost cost(const Request& request, const PatTrees& trees, double block_bytes, std::int64_t steps) {
  const int ranks = request.placement.ranks();
  const bool adds = request.collective == Collective::reduce_scatter;
  CostTally tally(request.placement);
  for (int bit = 0; bit < trees.bits(); ++bit) {
    std::size_t blocks = 0;
    int messages = 0;
    const auto add = [&](std::size_t more) {
      blocks += more;
      ++messages;
    };
    if (bit >= trees.lane_bit())
      for (const PatTrees::Spread& spread : trees.spreads(bit)) add(spread.from.size());
    for (const PatHop& hop : trees.hops())
      if (hop.bit == bit) add(trees.lanes_with(hop.to).size());
    const int distance = adds ? ranks - (1 << bit) : 1 << bit;
    for (int rank = 0; rank < ranks; ++rank)
      tally.send(rank, (rank + distance) % ranks, block_bytes * static_cast<double>(blocks),
                 messages);
    tally.end_phase();
  }
  Cost cost = tally.total(adds ? block_bytes * (ranks - 1) : 0);
  cost.steps = steps;
  if (cost.steps_inter_node > 0) cost.steps_inter_node = steps;
  cost.messages = cost.messages_inter_node = 0;
  cost.steps_leaving = {};  // thread blocks wait for each other beside the tally's phases
  // Lanes send blocks of their own together, which lie apart in the buffers.
  if (trees.lane_bit() < trees.bits()) cost.bytes_copied = ranks * block_bytes;
  return cost;
}

}  // namespace

std::int64_t pat_all_gather_steps(const PatTrees& trees) {
  Chains chains(trees);
  const std::size_t root = area_of(trees, 0);
  for (int bit = trees.bits() - 1; bit >= trees.lane_bit(); --bit) {
    std::int64_t arrived = 0;
    for (std::size_t i = 0; i < trees.spreads(bit).size(); ++i)
      arrived = chains.message(static_cast<std::size_t>(bit), chains.written[root], 0);
    chains.written[root] = std::max(chains.written[root], arrived);
    chains.copier = std::max(chains.copier, arrived);
  }
  for (const PatHop& hop : trees.hops()) {
    const auto to = static_cast<std::size_t>(hop.bit);
    const std::size_t from = area_of(trees, hop.from);
    const std::int64_t place = trees.aggregates() ? chains.free[to] : 0;
    chains.written[to] = chains.message(to, chains.written[from], place);
    chains.free[from] = std::max(chains.free[from], chains.sender[to]);
    chains.copier = std::max(chains.copier, chains.written[to]);
    chains.free[to] = chains.copier;
  }
  return chains.longest;
}

std::int64_t pat_reduce_scatter_steps(const PatTrees& trees) {
  Chains chains(trees);
  const std::size_t root = area_of(trees, 0);
  const auto fill = [&](std::size_t area) {
    if (chains.filled[area]) return;
    if (trees.aggregates()) chains.copier = std::max(chains.copier, chains.free[area]);
    chains.written[area] = trees.aggregates() ? chains.copier : chains.free[area];
    chains.filled[area] = true;
  };
  for (auto hop = trees.hops().rbegin(); hop != trees.hops().rend(); ++hop) {
    const auto to = static_cast<std::size_t>(hop->bit);
    const std::size_t from = area_of(trees, hop->from);
    // Raw data of a leaf needs no area unless it is aggregated.
    if (trees.aggregates()) fill(to);
    const std::int64_t ready = chains.filled[to] ? chains.written[to] : 0;
    chains.sender[to] = std::max(chains.sender[to], ready);
    chains.free[to] = chains.sender[to];
    chains.filled[to] = false;
    fill(from);
    chains.written[from] = chains.message(to, ready, chains.written[from]);
  }
  for (int bit = trees.lane_bit(); bit < trees.bits(); ++bit) {
    std::int64_t added = 0;
    for (std::size_t i = 0; i < trees.spreads(bit).size(); ++i)
      added =
          chains.message(static_cast<std::size_t>(bit), chains.written[root], chains.written[root]);
    chains.written[root] = added;
  }
  return chains.longest;
}

Cost pat_all_gather_cost(const Request& request, int aggregation, double block_bytes) {
  const PatTrees trees(request.placement.ranks(), aggregation);
  return cost(request, trees, block_bytes, pat_all_gather_steps(trees));
}

Cost pat_reduce_scatter_cost(const Request& request, int aggregation, double block_bytes) {
  const PatTrees trees(request.placement.ranks(), aggregation);
  return cost(request, trees, block_bytes, pat_reduce_scatter_steps(trees));
}

}  // namespace unisono::algorithm
