// How many bytes a step of a call moves: the arithmetic of the engine's tiles.
#pragma once

#include <unisono/result.h>

#include <cstdint>

#include "plan/chunk_layout.h"
#include "plan/plan.h"
#include "simulate/body_hash.h"
#include "simulate/machine.h"

namespace unisono::simulate {

// A simulation takes as long as there are bytes; no accelerator's memory holds more than this.
inline constexpr std::int64_t max_buffer_bytes = std::int64_t{1} << 38;

// Misuse if the larger of a rank's input and output holds more, for blocks of `count` elements.
Status check_size(const plan::Header& header, std::int64_t count, std::int64_t element_bytes);

class StepSizes;
// Steps of all its thread blocks, tile by tile.
std::uint64_t steps_of(const plan::RankProgram& program, const StepSizes& sizes);

class StepSizes {
 public:
  StepSizes() = default;
  // For blocks of `count` elements, in slots and tiles as the machine has them.
  StepSizes(const plan::Header& header, const Machine& machine, std::int64_t count,
            std::int64_t element_bytes);

  std::int64_t tiles() const { return tiles_; }
  // All chunks are equally large: a step's bytes depend on its tile and its count alone.
  bool uniform() const { return uniform_; }
  ChunkSizes chunks() const {
    if (uniform_ || layout_.chunk_elements == 0) return {};
    return {chunks_per_block_, layout_.count / layout_.chunk_elements};
  }

  std::int64_t largest_bytes(int step_count) const {
    return step_count * (tiles_ > 1 ? tile_bytes_ : last_tile_bytes_);
  }

  // The step's bytes with its loops' values, in `tile`. A step whose message would be empty has 0.
  std::int64_t bytes(const plan::Step& step, const plan::LoopValues& loops,
                     std::int64_t tile) const {
    if (uniform_) return step.count * (tile + 1 < tiles_ ? tile_bytes_ : last_tile_bytes_);
    return ragged_bytes(step, loops, tile);
  }

 private:
  std::int64_t ragged_bytes(const plan::Step& step, const plan::LoopValues& loops,
                            std::int64_t tile) const;

  plan::ChunkLayout layout_;
  std::int64_t chunks_per_block_ = 1;
  std::int64_t element_bytes_ = 1;
  std::int64_t tile_elements_ = 1;
  std::int64_t tiles_ = 0;
  std::int64_t tile_bytes_ = 0;
  std::int64_t last_tile_bytes_ = 0;
  bool uniform_ = true;
};

}  // namespace unisono::simulate
