#include "verify/memory.h"

#include <algorithm>
#include <array>

namespace unisono::verify {
namespace {

constexpr std::array<plan::Buffer, 3> buffers{plan::Buffer::input, plan::Buffer::output,
                                              plan::Buffer::scratch};

std::int64_t blocks_of(const plan::Plan& plan, const plan::RankProgram& program,
                       plan::Buffer buffer) {
  switch (buffer) {
    case plan::Buffer::input:
      return plan::input_blocks_of(plan.header, program.rank);
    case plan::Buffer::output:
      return plan::output_blocks_of(plan.header, program.rank);
    case plan::Buffer::scratch:
      return program.scratch_blocks;
  }
  return 0;
}

}  // namespace

Memory::Memory(const plan::Plan& plan) {
  std::int64_t next = 0;
  for (const plan::RankProgram& program : plan.programs) {
    first_.push_back(next);
    // A buffer that is renamed into another one has no cells of its own.
    std::array<std::int64_t, 3> start{};
    for (const plan::Buffer buffer : buffers) {
      const std::int64_t chunks = blocks_of(plan, program, buffer) * plan.header.chunks_per_block;
      const plan::Storage storage = plan::storage_of(plan.header, program.rank, buffer, 0);
      views_.push_back({storage.chunk, chunks});
      if (storage.buffer != buffer) continue;
      start[static_cast<std::size_t>(buffer)] = next;
      next += chunks;
    }
    for (const plan::Buffer buffer : buffers) {
      const plan::Storage storage = plan::storage_of(plan.header, program.rank, buffer, 0);
      views_[views_.size() - 3 + static_cast<std::size_t>(buffer)].cell +=
          start[static_cast<std::size_t>(storage.buffer)];
    }
  }
  first_.push_back(next);
}

Memory::Place Memory::place(std::int64_t cell) const {
  const auto after = std::ranges::upper_bound(first_, cell);
  const int rank = static_cast<int>(after - first_.begin()) - 1;
  for (const plan::Buffer buffer :
       {plan::Buffer::output, plan::Buffer::scratch, plan::Buffer::input}) {
    const View& view = of(rank, buffer);
    if (cell >= view.cell && cell < view.cell + view.chunks)
      return {rank, buffer, cell - view.cell};
  }
  return {rank, plan::Buffer::scratch, -1};
}

std::int64_t count_cells(const plan::Plan& plan) {
  std::int64_t cells = 0;
  for (const plan::RankProgram& program : plan.programs)
    for (const plan::Buffer buffer : buffers)
      cells += blocks_of(plan, program, buffer) * plan.header.chunks_per_block;
  return cells;
}

}  // namespace unisono::verify
