// How a thread block of bulk copies divides its shared memory: each warp has stages of its own,
// each of a tile of every source, and of those that add a tile for the sum. Of a chosen path, slots
// are a warp's stages, and chunks are tiles.
#pragma once

namespace unisono::engine::gpu {

struct BulkStages {
  int tile_bytes;
  int stages;
};

// What a warp moves at once; tiles are multiples of it.
inline constexpr int bulk_tile_grain = 512;
inline constexpr int bulk_max_tile_bytes = 16 << 10;

// Warps of a block.
int bulk_warps(int ranks);
// As a row wants them; 0: what suits the ranks, and what there is room for.
BulkStages bulk_stages(bool adds, int ranks, int slots, int chunk_bytes);
int bulk_most_stages(bool adds, int ranks, int tile_bytes);
int bulk_least_stages(bool adds);

}  // namespace unisono::engine::gpu
