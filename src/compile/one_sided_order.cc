#include "compile/one_sided_order.h"

#include <algorithm>

#include "base/error.h"

namespace unisono::compile {

const std::vector<OneSidedOrder::Put>& OneSidedOrder::signal(const Operation& it,
                                                             std::int32_t instruction) {
  OneWay& on = ways_[way(it)];
  on.signals.push_back({instruction, std::exchange(on.new_puts, {})});
  return on.signals.back().puts;
}

const OneSidedOrder::Signal& OneSidedOrder::wait(const Operation& it, std::int32_t instruction) {
  OneWay& on = ways_[way(it)];
  const Signal& given = on.signals[on.waits++];
  orderings_[{it.source_rank, it.destination_rank}].push_back({given.instruction, instruction});
  return given;
}

Result<std::int32_t> OneSidedOrder::wait_after(const Module& module, const Need& need) {
  const Instruction& mine = module.instructions.back();
  const Instruction& other = module.instructions[at(need.instruction)];
  for (const Ordering& it : orderings_[{other.rank, mine.rank}]) {
    if (it.signal < need.instruction) continue;
    late_needs_.emplace_back(it.signal, need);
    return it.wait;
  }
  return misuse(module.trace->where(mine.line), "race: rank ", mine.rank,
                need.is_overwrite ? " overwrites" : " uses", " what rank ", other.rank,
                need.is_overwrite ? " reads " : " writes ", module.trace->at(other.line),
                "; after that step signal(", other.rank, ", ", mine.rank, ") and wait(", mine.rank,
                ", ", other.rank, ") must run first");
}

void OneSidedOrder::add_needs(Module& module) {
  if (late_needs_.empty()) return;
  std::ranges::stable_sort(late_needs_, {}, [](const auto& one) { return one.first; });
  std::vector<Need> all;
  all.reserve(module.needs.size() + late_needs_.size());
  auto late = late_needs_.begin();
  for (std::size_t i = 0; i < module.instruction_count(); ++i) {
    const auto own = module.needs_of(i);
    const auto first = static_cast<std::int32_t>(all.size());
    all.insert(all.end(), own.begin(), own.end());
    for (; late != late_needs_.end() && at(late->first) == i; ++late) all.push_back(late->second);
    module.instructions[i].first_need = first;
  }
  module.instructions.back().first_need = static_cast<std::int32_t>(all.size());
  module.needs = std::move(all);
}

}  // namespace unisono::compile
