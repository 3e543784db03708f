// Synchronisation: which instructions wait for other thread blocks of their rank.
//
// Assumes: every thread block's order, and a sequence of all instructions that respects it.
// Establishes: everything that an instruction needs is done before it, by the order of thread
// blocks and `waits` alone. An instruction waits for at most one step of each other thread block,
// and for none of which it is known already: because its thread block waited for that one or a
// later one, or for something that did. Messages order nothing within a rank: an executor may not
// rely on that.
#include <algorithm>

#include "compile/passes.h"

namespace unisono::compile {
namespace {

// Knowledge of what others know is kept for ranks of at most so many thread blocks; it takes a
// number for each pair of them and wait.
constexpr std::int32_t most_known_blocks = 512;

class Synchronisation {
 public:
  explicit Synchronisation(Module& module)
      : module_(module), position_(module.instruction_count()), known_(module.blocks.size()) {
    for (const Block& block : module.blocks)
      for (std::size_t i = 0; i < block.order.size(); ++i)
        position_[at(block.order[i])] = static_cast<std::int32_t>(i);
  }

  void run() {
    for (const std::int32_t instruction : module_.sequence) wait(instruction);
  }

 private:
  struct Snapshot {
    std::int32_t step;                // known from this step of the thread block on
    std::vector<std::int32_t> steps;  // by thread block of the rank
  };

  void wait(std::int32_t instruction) {
    const Instruction& one = module_.instructions[at(instruction)];
    wanted_.clear();
    for (const Need& need : module_.needs_of(at(instruction))) {
      const std::int32_t other = module_.instructions[at(need.instruction)].block;
      if (other == one.block) continue;
      const std::int32_t steps = position_[at(need.instruction)] + 1;
      const auto same = std::ranges::find(wanted_, other, &Wait::block);
      if (same == wanted_.end())
        wanted_.push_back({instruction, other, steps});
      else
        same->steps = std::max(same->steps, steps);
    }
    if (wanted_.empty()) return;
    // The later in the sequence, the more it is likely to have seen of the others.
    std::ranges::sort(wanted_, [&](const Wait& a, const Wait& b) {
      return a.steps != b.steps ? a.steps > b.steps : a.block < b.block;
    });
    const std::int32_t first = module_.first_block[at(one.rank)];
    const auto width = at(module_.first_block[at(one.rank) + 1] - first);
    std::vector<Snapshot>& history = known_[at(one.block)];
    std::vector<std::int32_t> now =
        history.empty() ? std::vector<std::int32_t>(width) : history.back().steps;
    // First what all of them bring together, without what each is waited for itself.
    std::size_t kept = 0;
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const Wait& one_wait = wanted_[i];
      bool is_known = now[at(one_wait.block - first)] >= one_wait.steps;
      for (std::size_t j = 0; j < wanted_.size() && !is_known; ++j)
        is_known = j != i && knows(wanted_[j], one_wait, first);
      if (!is_known) wanted_[kept++] = one_wait;
    }
    wanted_.resize(kept);
    if (kept == 0) return;
    for (Wait one_wait : wanted_) {
      std::int32_t& steps = now[at(one_wait.block - first)];
      steps = std::max(steps, one_wait.steps);
      if (const Snapshot* seen = snapshot(one_wait))
        for (std::size_t block = 0; block < width; ++block)
          now[block] = std::max(now[block], seen->steps[block]);
      one_wait.block -= first;
      module_.waits.push_back(one_wait);
    }
    // Without the others' knowledge, the last state is enough.
    if (width > at(most_known_blocks)) history.clear();
    history.push_back({position_[at(instruction)], std::move(now)});
  }

  // What the thread block knew when it had done the step.
  const Snapshot* snapshot(const Wait& wait) const {
    const std::vector<Snapshot>& history = known_[at(wait.block)];
    const auto later = std::ranges::upper_bound(history, wait.steps - 1, {}, &Snapshot::step);
    return later == history.begin() ? nullptr : &*(later - 1);
  }

  bool knows(const Wait& other, const Wait& wanted, std::int32_t first) const {
    const Snapshot* seen = snapshot(other);
    return seen != nullptr && seen->steps[at(wanted.block - first)] >= wanted.steps;
  }

  Module& module_;
  std::vector<std::int32_t> position_;        // by instruction, in its thread block
  std::vector<std::vector<Snapshot>> known_;  // by thread block
  std::vector<Wait> wanted_;
};

}  // namespace

Status synchronise(Module& module) {
  Synchronisation(module).run();
  return {};
}

}  // namespace unisono::compile
