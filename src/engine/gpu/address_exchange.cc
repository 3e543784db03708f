#include "engine/gpu/address_exchange.h"

#include <vector>

namespace unisono::engine::gpu {

static_assert(device::max_addresses <= UINT8_MAX);

plan::ZeroCopyLimits zero_copy_limits() { return {.messages = device::max_addresses, .chunks = 1}; }

void mark_addresses(const plan::Header& header, const plan::RankProgram& program,
                    LoweredProgram& lowered) {
  const auto numbers = plan::early_messages(header, program, zero_copy_limits());
  for (std::size_t b = 0; b < lowered.blocks.size(); ++b) {
    device::Block& block = lowered.blocks[b];
    for (std::uint32_t i = 0; i < block.steps; ++i) {
      device::Step& step = lowered.steps[block.first_step + i];
      step.out_address = static_cast<std::uint8_t>(numbers[b][i].sent);
      step.in_address = static_cast<std::uint8_t>(numbers[b][i].received);
      block.sends += (step.flags & device::gives_message) != 0;
      block.receives += (step.flags & device::takes_message) != 0;
      lowered.has_addresses |= step.in_address != 0;
    }
  }
}

}  // namespace unisono::engine::gpu
