// From (buffer, chunk, tile) to addresses.
#pragma once

#include <unisono/result.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "plan/chunk_layout.h"

namespace unisono::engine {

// A stretch of a rank's memory that belongs to one or more chunks of a step.
struct Extent {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

// Calls visit(a, b, bytes, offset) for the stretches on which both lists are contiguous.
template <class Visit>
void zip(const std::vector<Extent>& a, const std::vector<Extent>& b, Visit visit) {
  std::size_t ia = 0, ib = 0, used_a = 0, used_b = 0, offset = 0;
  while (ia < a.size() && ib < b.size()) {
    const std::size_t bytes = std::min(a[ia].bytes - used_a, b[ib].bytes - used_b);
    visit(a[ia].data + used_a, b[ib].data + used_b, bytes, offset);
    offset += bytes;
    used_a += bytes;
    used_b += bytes;
    if (used_a == a[ia].bytes) ++ia, used_a = 0;
    if (used_b == b[ib].bytes) ++ib, used_b = 0;
  }
}

// The memory of one call: where each tile of each chunk lies.
class CallMemory {
 public:
  // Elements of a tile: the largest step of `max_step_count` chunks fits in `slot_bytes`. Rounded
  // down to 64 bytes where that leaves anything. The same on every rank, as it must be.
  static std::int64_t tile_elements(std::size_t slot_bytes, int max_step_count,
                                    std::size_t element_bytes);
  // No more than that, and chunks of `chunk_elements` are cut as `tiling` says.
  static std::int64_t tile_elements(std::size_t slot_bytes, int max_step_count,
                                    std::size_t element_bytes, std::int64_t chunk_elements,
                                    const Tiling& tiling);

  // `scratch` holds scratch_blocks blocks of arguments.count elements.
  void bind(const plan::Header& header, const Arguments& arguments, void* scratch,
            std::int64_t tile_elements);

  // Another call of the same count and type, with buffers that are not uneven.
  void rebase(const Arguments& arguments, void* scratch) {
    arguments_.input = arguments.input;
    arguments_.output = arguments.output;
    scratch_ = static_cast<std::byte*>(scratch);
  }
  // Whether each block is a message of its own; then its fingerprint.
  bool has_messages() const {
    return !arguments_.inputs.calls.empty() || !arguments_.outputs.calls.empty();
  }
  std::uint64_t fingerprint(plan::Buffer buffer, std::int64_t block) const {
    return arguments_.blocks(buffer).calls[static_cast<std::size_t>(block)];
  }
  // Where a buffer of blocks of equal size starts.
  std::byte* base(plan::Buffer buffer) const {
    if (buffer == plan::Buffer::scratch) return scratch_;
    // Only a plan that is in place writes its input, and then the caller's memory is writable.
    return static_cast<std::byte*>(
        buffer == plan::Buffer::input ? const_cast<void*>(arguments_.input) : arguments_.output);
  }

  // Whether all blocks have one size.
  bool is_uniform() const { return !arguments_.is_uneven(); }
  // Of the part of a chunk that lies in a tile, where blocks are equal.
  std::size_t most_tile_bytes() const {
    return static_cast<std::size_t>(std::min(tile_elements_, uniform_.elements(0)) *
                                    element_bytes_);
  }
  // Of so many blocks of equal size.
  std::size_t uniform_bytes(std::int64_t blocks) const {
    return static_cast<std::size_t>(blocks * arguments_.count * element_bytes_);
  }

  // How many tiles cover every chunk of this rank.
  std::int64_t tiles(const plan::Header& header, int rank) const;

  // The parts of chunks first .. first + count - 1 that lie in `tile`, in order, empty ones left
  // out and adjacent ones joined. Replaces `extents`, whose capacity is kept. Returns their bytes.
  std::size_t extents(plan::Buffer buffer, std::int64_t first, int count, std::int64_t tile,
                      std::vector<Extent>& extents) const;

 private:
  struct Block {
    std::byte* data;
    plan::ChunkLayout layout;
  };
  Block block(plan::Buffer buffer, std::int64_t index) const;

  Arguments arguments_;
  std::byte* scratch_ = nullptr;
  std::int64_t element_bytes_ = 1;
  std::int64_t tile_elements_ = 1;
  int chunks_per_block_ = 1;
  plan::ChunkLayout uniform_;
};

}  // namespace unisono::engine
