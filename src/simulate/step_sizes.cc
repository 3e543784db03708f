#include "simulate/step_sizes.h"

#include <algorithm>

#include "base/error.h"
#include "plan/walk.h"

namespace unisono::simulate {
namespace {

// Smaller tiles are not cut to have more of them: their overhead outweighs the overlap.
constexpr std::int64_t least_cut_bytes = 32 << 10;

// Whole cache lines where there is more than one.
std::int64_t rounded(std::int64_t elements, std::int64_t element_bytes) {
  const std::int64_t grain = 64 / element_bytes;
  return elements >= grain ? elements / grain * grain : std::max<std::int64_t>(elements, 1);
}

}  // namespace

Status check_size(const plan::Header& header, std::int64_t count, std::int64_t element_bytes) {
  int blocks = 1;
  for (int rank = 0; rank < header.ranks; ++rank)
    blocks = std::max(
        {blocks, plan::input_blocks_of(header, rank), plan::output_blocks_of(header, rank)});
  const std::int64_t most = max_buffer_bytes / blocks / element_bytes;
  if (count < 0 || count > most)
    return misuse("blocks of ", count, " elements; a simulated buffer holds at most ",
                  max_buffer_bytes >> 30, " GiB, which is ", most, " elements in each of ", blocks,
                  " blocks");
  return {};
}

std::uint64_t steps_of(const plan::RankProgram& program, const StepSizes& sizes) {
  std::int64_t steps = 0;
  for (const plan::ThreadBlock& block : program.thread_blocks)
    steps += plan::unrolled_steps(block.body);
  return static_cast<std::uint64_t>(steps * sizes.tiles());
}

StepSizes::StepSizes(const plan::Header& header, const Machine& machine, std::int64_t count,
                     std::int64_t element_bytes)
    : layout_(plan::ChunkLayout::of(count, header.chunks_per_block, element_bytes)),
      chunks_per_block_(header.chunks_per_block),
      element_bytes_(element_bytes) {
  const ProtocolCosts& costs = machine.protocols[static_cast<std::size_t>(header.protocol)];
  const auto slot =
      static_cast<std::int64_t>(static_cast<double>(costs.slot_bytes) / costs.wire_bytes_per_byte);
  const std::int64_t chunk = layout_.elements(0);
  tile_elements_ = rounded(slot / (header.max_step_count * element_bytes), element_bytes);
  if (machine.tiles > 1) {
    const std::int64_t cut = std::max(chunk / machine.tiles * element_bytes, least_cut_bytes);
    tile_elements_ = std::min(tile_elements_, rounded(cut / element_bytes, element_bytes));
  }
  tiles_ = (chunk + tile_elements_ - 1) / tile_elements_;
  uniform_ = layout_.elements(header.chunks_per_block - 1) == chunk;
  tile_bytes_ = tile_elements_ * element_bytes;
  last_tile_bytes_ = tiles_ > 0 ? (chunk - (tiles_ - 1) * tile_elements_) * element_bytes : 0;
}

std::int64_t StepSizes::ragged_bytes(const plan::Step& step, const plan::LoopValues& loops,
                                     std::int64_t tile) const {
  // What a step that only receives takes is as large as where it puts it.
  const plan::Location& location =
      plan::writes_destination(step.operation) ? step.destination : step.source;
  const std::int64_t first = location.index.at(loops);
  std::int64_t elements = 0;
  for (std::int64_t chunk = first; chunk < first + step.count; ++chunk) {
    const std::int64_t whole = layout_.elements(chunk % chunks_per_block_);
    elements += std::clamp<std::int64_t>(whole - tile * tile_elements_, 0, tile_elements_);
  }
  return elements * element_bytes_;
}

}  // namespace unisono::simulate
