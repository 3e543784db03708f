#include "engine/host/direct_messages.h"

#include "plan/unrolled.h"
#include "plan/zero_copy.h"
#include "transport/fifo_destinations.h"

namespace unisono::engine {

std::vector<DirectMessages> direct_messages(const plan::Header& header,
                                            const plan::RankProgram& program) {
  const auto numbers = plan::early_messages(
      header, program, {.messages = transport::DestinationList::most_messages});
  std::size_t steps = 0;
  for (const auto& block : numbers) steps += block.size();
  if (steps > plan::zero_copy_max_steps) return {};
  std::vector<DirectMessages> out(numbers.size());
  for (std::size_t block = 0; block < numbers.size(); ++block) {
    const std::vector<plan::Step> unrolled = plan::unroll(program.thread_blocks[block].body);
    for (std::size_t i = 0; i < unrolled.size(); ++i) {
      const plan::EarlyMessages& of_step = numbers[block][i];
      out[block].sent.push_back(static_cast<std::int32_t>(of_step.sent) - 1);
      if (of_step.received == 0) continue;
      auto& destinations = out[block].destinations;
      destinations.resize(static_cast<std::size_t>(of_step.received), -1);
      destinations.back() = static_cast<std::int32_t>(unrolled[i].destination.index.base);
    }
  }
  return out;
}

}  // namespace unisono::engine
