#include "engine/gpu/address_exchange.h"

#include <vector>

#include "plan/zero_copy.h"

namespace unisono::engine::gpu {
namespace {

void number(const device::Step& step, std::uint32_t message, std::uint8_t& post) {
  if (step.count == 1 && message <= device::max_addresses)
    post = static_cast<std::uint8_t>(message);
}

}  // namespace

void mark_addresses(const plan::Header& header, const plan::RankProgram& program,
                    LoweredProgram& lowered) {
  const std::vector<std::vector<bool>> early = plan::receives_early(header, program);
  for (std::size_t b = 0; b < lowered.blocks.size(); ++b) {
    device::Block& block = lowered.blocks[b];
    for (std::uint32_t i = 0; i < block.steps; ++i) {
      device::Step& step = lowered.steps[block.first_step + i];
      if ((step.flags & device::gives_message) != 0) number(step, ++block.sends, step.out_address);
      if ((step.flags & device::takes_message) == 0) continue;
      ++block.receives;
      if (early[b][i]) number(step, block.receives, step.in_address);
      lowered.has_addresses |= step.in_address != 0;
    }
  }
}

}  // namespace unisono::engine::gpu
