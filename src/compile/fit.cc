// Fitting: whether the target can carry the plan.
//
// Assumes: thread blocks in their order, and their waits; no step has more chunks than the target
// moves at once.
// Establishes: no limit of the target is exceeded. Steps are counted as they will stand in its
// file. Without a target, nothing is asked: the verifier knows the plan format's own limits.
#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "compile/passes.h"

namespace unisono::compile {
namespace {

class Fitting {
 public:
  Fitting(const Module& module, const plan::ForeignExecutor& target)
      : module_(module), target_(target), limits_(target.limits) {}

  Status run() {
    count_waits();
    if (module_.header.channels > limits_.max_channels)
      return misuse(module_.trace->where(0), "program ", module_.header.name, " uses ",
                    module_.header.channels, " channels; ", target_.name, " supports ",
                    limits_.max_channels, ". Use fewer channels or instances");
    for (int rank = 0; rank < module_.header.ranks; ++rank) UNISONO_TRY(check_rank(rank));
    return {};
  }

 private:
  std::string where(const Block& block) const {
    return module_.trace->where(module_.instructions[at(block.order.front())].line);
  }

  void count_waits() {
    waits_.resize(module_.instruction_count());
    awaited_.resize(module_.blocks.size());
    for (const Wait& wait : module_.waits) {
      const Instruction& one = module_.instructions[at(wait.instruction)];
      ++waits_[at(wait.instruction)];
      awaited_[at(module_.first_block[at(one.rank)] + wait.block)] = wait.instruction;
    }
  }

  Status check_rank(int rank) const {
    const std::int32_t first = module_.first_block[at(rank)];
    const std::int32_t end = module_.first_block[at(rank) + 1];
    std::vector<int> on_channel(at(module_.header.channels));
    for (std::int32_t i = first; i < end; ++i) {
      const Block& block = module_.blocks[at(i)];
      if (i - first >= limits_.max_thread_blocks)
        return misuse(where(block), "rank ", rank, " needs ", end - first, " thread blocks; ",
                      target_.name, " supports ", limits_.max_thread_blocks,
                      " per rank. Use fewer peers, channels or instances");
      if (++on_channel[at(block.channel)] > target_.max_blocks_per_channel)
        return misuse(where(block), "rank ", rank, " needs more than ",
                      target_.max_blocks_per_channel, " thread blocks on channel ", block.channel,
                      ", the most that ", target_.name,
                      " supports; spread the messages over channels");
      if (awaited_[at(i)] > 0 && i - first > target_.last_awaited_block)
        return misuse(module_.trace->where(module_.instructions[at(awaited_[at(i)])].line), "rank ",
                      rank, " waits for its thread block ", i - first, "; in ", target_.name,
                      " only thread blocks 0 to ", target_.last_awaited_block,
                      " can be waited for");
      UNISONO_TRY(check_steps(rank, i - first, block));
    }
    return {};
  }

  Status check_steps(int rank, std::int32_t number, const Block& block) const {
    std::int64_t steps = 0;
    for (const std::int32_t i : block.order) {
      const Instruction& one = module_.instructions[at(i)];
      const auto here = [&] { return module_.trace->where(one.line); };
      if ((limits_.operations >> static_cast<unsigned>(one.operation) & 1U) == 0)
        return misuse(here(), "this step becomes ", plan::name(one.operation), " on rank ", rank,
                      ", which ", target_.name, " cannot run");
      steps += plan::steps_in_file(target_, one.operation, at(waits_[at(i)]));
      if (steps > limits_.max_steps)
        return misuse(here(), "this step exceeds the ", limits_.max_steps,
                      " steps of a thread block that ", target_.name, " supports (thread block ",
                      number, " of rank ", rank,
                      "); use more channels, which divide the steps among thread blocks");
    }
    return {};
  }

  const Module& module_;
  const plan::ForeignExecutor& target_;
  const plan::Limits& limits_;
  std::vector<int> waits_;             // by instruction: how many
  std::vector<std::int32_t> awaited_;  // by thread block: the last instruction that waits for it
};

}  // namespace

Status fit(Module& module) {
  if (module.options.target == nullptr) return {};
  return Fitting(module, *module.options.target).run();
}

}  // namespace unisono::compile
