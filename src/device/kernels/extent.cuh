// Where the part of a chunk lies that a tile of a program's launch moves.
#pragma once

#include <cstdint>

#include "device/kernels/address.cuh"
#include "device/program.h"
#include "plan/chunk_layout.h"

namespace unisono::device {
namespace {

// The enumerators of plan::Buffer, by value.
constexpr int input_buffer = 0;
constexpr int output_buffer = 1;

struct Extent {
  Byte* data;
  std::int64_t bytes;
};

// The part of a chunk that lies in a tile.
__device__ Extent locate(const Launch& launch, int buffer, int chunk, int tile) {
  const auto chunks = static_cast<unsigned>(launch.program.chunks_per_block);
  const unsigned block = static_cast<unsigned>(chunk) / chunks;
  const unsigned place = static_cast<unsigned>(chunk) % chunks;
  plan::ChunkLayout layout{launch.count, launch.chunk_elements};
  std::int64_t start = launch.count * block;
  if (launch.is_uneven != 0 && (buffer == input_buffer || buffer == output_buffer)) {
    const bool in = buffer == input_buffer;
    const UnevenBlocks& uneven = launch.uneven;
    start = in ? uneven.input_displacements[block] : uneven.output_displacements[block];
    layout = plan::ChunkLayout::of(in ? uneven.input_counts[block] : uneven.output_counts[block],
                                   static_cast<int>(chunks), launch.arithmetic.element_bytes);
  }
  const std::int64_t end = layout.end(place);
  const std::int64_t wanted = layout.begin(place) + tile * launch.tile_elements;
  const std::int64_t from = wanted < end ? wanted : end;
  const std::int64_t to = from + launch.tile_elements < end ? from + launch.tile_elements : end;
  const std::int64_t size = launch.arithmetic.element_bytes;
  return {at_address<Byte>(launch.buffers[buffer]) + (start + from) * size, (to - from) * size};
}

}  // namespace
}  // namespace unisono::device
