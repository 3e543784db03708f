// Recursive doubling all-gather, nearest first, and recursive halving reduce-scatter in natural
// order, over a group of any size; and their entry for all ranks. (Thakur, Rabenseifner, Gropp:
// Optimization of Collective Communication Operations in MPICH, 2005, sections 4.1 and 4.4.)
//
// The members' range is halved again and again (halving.h). The reduce-scatter goes down: at each
// level a member gives its partner the sums for the partner's half, and adds what it gets to those
// of its own half, which is contiguous. The all-gather goes up and exchanges whole halves. Instead
// of folding ranks when p is no power of two, the odd member of a level gives to, or gets from,
// the host, which is one message more for the host and none for the odd one.
//
//   steps          ceil(log2 p)
//   bytes sent     (p - 1) b      b: bytes of a block, p a power of two; else more by hosts
//                                 (all-gather), and by members on whose side the halves are smaller
//   bytes reduced  (p - 1) b      by the reduce-scatter
//   cost           ceil(log2 p) α + (p - 1) b β
//
// Nothing that was sent is overwritten later in the same collective; one slot per connection.
#include <algorithm>

#include "algorithm/algorithms.h"
#include "algorithm/parts/exchange.h"
#include "algorithm/parts/group_collectives.h"
#include "algorithm/parts/halving.h"
#include "algorithm/parts/recursive_cost.h"
#include "algorithm/request.h"

namespace unisono::algorithm {

Ready write_recursive_all_gather(Phase& phase, plan::Location own, const BlockMap& blocks) {
  const Group& group = phase.group;
  const std::vector<Halves> levels = halvings(group.size(), group.me());
  const Ready placed = place_own_block(phase, own, blocks);
  Ready ready = phase.start;
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    const bool alone = level->my_size() == 1;
    const std::vector<Run> mine =
        alone ? own_runs(blocks, group, own) : blocks.runs(level->my_first(), level->my_size());
    const std::vector<Run> other = blocks.runs(level->other_first(), level->other_size());
    if (!alone) ready = both(ready, placed);
    const std::vector<Run> given = level->is_odd() ? std::vector<Run>{} : mine;
    const int peer = group.rank(level->is_odd() ? level->host() : level->partner());
    Ready next = exchange(phase, ready, peer, given, peer, {.destination = other});
    if (level->is_host())
      next = both(next, exchange(phase, ready, group.rank(level->odd()), mine, -1, {}));
    ready = next;
  }
  return both(ready, placed);
}

namespace {

// Where a member of a reduce-scatter keeps its partial sums: at first the contributions themselves.
class PartialSums {
 public:
  PartialSums(Phase& phase, const BlockMap& contributions, const BlockMap* sums, int first,
              int size)
      : contributions_(contributions), sums_(sums) {
    if (sums || size == 0) return;
    std::int64_t begin = contributions.first_chunk(first);
    std::int64_t end = begin;
    for (int block = first; block < first + size; ++block) {
      begin = std::min(begin, contributions.first_chunk(block));
      end = std::max(end, contributions.first_chunk(block) + contributions.chunks(block));
    }
    const std::int64_t chunks = phase.chunks_per_block;
    origin_ = begin / chunks * chunks;
    scratch_ = phase.first_scratch_block * chunks;
    phase.first_scratch_block += static_cast<int>((end - origin_ + chunks - 1) / chunks);
    phase.program.need_scratch(phase.first_scratch_block);
  }

  std::vector<Run> at(int first, int size) const {
    return raw_ ? contributions_.runs(first, size) : added(first, size);
  }
  std::vector<Run> added(int first, int size) const {
    if (sums_) return sums_->runs(first, size);
    return moved(contributions_.runs(first, size), origin_, plan::scratch(scratch_));
  }
  void have_been_added() { raw_ = false; }

 private:
  const BlockMap& contributions_;
  const BlockMap* sums_;
  std::int64_t origin_ = 0;   // the chunk of the contributions which stands at scratch_
  std::int64_t scratch_ = 0;  // a chunk of the scratch buffer
  bool raw_ = true;
};

}  // namespace

Ready write_recursive_reduce_scatter(Phase& phase, const BlockMap& contributions,
                                     plan::Location result, const BlockMap* sums) {
  const Group& group = phase.group;
  const std::vector<Run> sum = own_runs(contributions, group, result);
  const std::vector<Halves> levels = halvings(group.size(), group.me());
  if (levels.empty()) {
    plan::BlockBuilder alone = phase.program.block(phase.channel, -1, -1);
    wait_for(alone, phase.start);
    copy_runs(alone, own_runs(contributions, group), sum);
    return {done(alone)};
  }

  const bool needs_scratch = levels.front().my_size() > 1;
  PartialSums partial(phase, contributions, sums, levels.front().my_first(),
                      needs_scratch ? levels.front().my_size() : 0);
  Ready ready = phase.start;
  for (const Halves& level : levels) {
    const std::vector<Run> give = partial.at(level.other_first(), level.other_size());
    if (level.is_odd()) {
      ready = exchange(phase, ready, group.rank(level.host()), give, -1, {});
      continue;
    }
    const std::vector<Run> source = partial.at(level.my_first(), level.my_size());
    const std::vector<Run> destination =
        level.my_size() == 1 ? sum : partial.added(level.my_first(), level.my_size());
    const int peer = group.rank(level.partner());
    ready =
        exchange(phase, ready, peer, give, peer, {.destination = destination, .source = source});
    if (level.is_host())
      ready = exchange(phase, ready, -1, {}, group.rank(level.odd()),
                       {.destination = destination, .source = destination});
    partial.have_been_added();
  }
  return ready;
}

namespace {

plan::Header header(const Request& request) {
  const int ranks = request.placement.ranks();
  return group_header(request, (ranks + 1) / 2);
}

plan::RankProgram program(const Request& request, int rank) {
  return all_gather_program(request, rank, write_recursive_all_gather);
}

Cost cost(const Request& request, double block_bytes) {
  CostTally tally(request.placement);
  tally_recursive_all_gather(tally, Group::all(request.placement.ranks(), 0), block_bytes);
  return tally.total(0);
}

}  // namespace

const Entry recursive_doubling_all_gather_near = {
    .name = "recursive_doubling",
    .collective = Collective::all_gather,
    .summary = "Pairs at distances 1, 2, 4, ... exchange all blocks that they have.",
    .source = "Thakur, Rabenseifner, Gropp 2005, section 4.1",
    .constraint = "any number of ranks",
    .supports = any_ranks,
    .header = header,
    .program = program,
    .cost = cost,
    .symmetry = by_exclusive_or,
};

}  // namespace unisono::algorithm
