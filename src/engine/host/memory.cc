#include "engine/host/memory.h"

#include <algorithm>

namespace unisono::engine {

std::int64_t CallMemory::tile_elements(std::size_t slot_bytes, int max_step_count,
                                       std::size_t element_bytes) {
  const auto elements = static_cast<std::int64_t>(
      slot_bytes / (static_cast<std::size_t>(max_step_count) * element_bytes));
  const auto grain = static_cast<std::int64_t>(64 / element_bytes);
  return elements >= grain ? elements / grain * grain : std::max<std::int64_t>(elements, 1);
}

std::int64_t CallMemory::tile_elements(std::size_t slot_bytes, int max_step_count,
                                       std::size_t element_bytes, std::int64_t chunk_elements,
                                       const Tiling& tiling) {
  const std::int64_t most = tile_elements(slot_bytes, max_step_count, element_bytes);
  if (tiling.tiles <= 1) return most;
  const std::int64_t wanted = tile_elements(
      std::max(static_cast<std::size_t>(chunk_elements / tiling.tiles) * element_bytes,
               tiling.least_bytes),
      1, element_bytes);
  return std::min(wanted, most);
}

void CallMemory::bind(const plan::Header& header, const Arguments& arguments, void* scratch,
                      std::int64_t tile_elements) {
  arguments_ = arguments;
  scratch_ = static_cast<std::byte*>(scratch);
  element_bytes_ = static_cast<std::int64_t>(size_bytes(arguments.type));
  tile_elements_ = tile_elements;
  chunks_per_block_ = header.chunks_per_block;
  uniform_ = plan::ChunkLayout::of(arguments.count, chunks_per_block_, element_bytes_);
}

std::int64_t CallMemory::tiles(const plan::Header& header, int rank) const {
  std::int64_t largest = 0;
  const auto take = [&](plan::Buffer buffer, int blocks) {
    for (int index = 0; index < blocks; ++index)
      largest = std::max(largest, block(buffer, index).layout.elements(0));
  };
  if (arguments_.is_uneven()) {
    take(plan::Buffer::input, plan::input_blocks_of(header, rank));
    take(plan::Buffer::output, plan::output_blocks_of(header, rank));
  } else {
    largest = uniform_.elements(0);  // no chunk is larger than the first
  }
  return (largest + tile_elements_ - 1) / tile_elements_;
}

CallMemory::Block CallMemory::block(plan::Buffer buffer, std::int64_t index) const {
  const Blocks& blocks = arguments_.blocks(buffer);
  if (buffer != plan::Buffer::scratch && !blocks.counts.empty()) {
    const auto i = static_cast<std::size_t>(index);
    return {base(buffer) + blocks.displacements[i] * element_bytes_,
            plan::ChunkLayout::of(blocks.counts[i], chunks_per_block_, element_bytes_)};
  }
  return {base(buffer) + index * arguments_.count * element_bytes_, uniform_};
}

std::size_t CallMemory::extents(plan::Buffer buffer, std::int64_t first, int count,
                                std::int64_t tile, std::vector<Extent>& extents) const {
  extents.clear();
  std::size_t total = 0;
  for (std::int64_t chunk = first; chunk < first + count; ++chunk) {
    const Block in = block(buffer, chunk / chunks_per_block_);
    const std::int64_t place = chunk % chunks_per_block_;
    const std::int64_t end = in.layout.end(place);
    const std::int64_t from = std::min(in.layout.begin(place) + tile * tile_elements_, end);
    const std::int64_t to = std::min(from + tile_elements_, end);
    if (from == to) continue;
    std::byte* data = in.data + from * element_bytes_;
    const auto bytes = static_cast<std::size_t>((to - from) * element_bytes_);
    total += bytes;
    if (!extents.empty() && extents.back().data + extents.back().bytes == data)
      extents.back().bytes += bytes;
    else
      extents.push_back({data, bytes});
  }
  return total;
}

}  // namespace unisono::engine
