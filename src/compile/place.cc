// Placement: where the chunks of scratch lie.
//
// Assumes: a scratch chunk of an instruction is slot * chunks_per_block + shape, where slot is its
// place among the rank's scratch chunks, and shape the place in its block of the data that it
// holds. Establishes: chunks of the plan's scratch buffer, and each rank's number of scratch
// blocks.
//
// A chunk's size depends on its place in its block, so data of shape s lies at place s of some
// block. Slots that follow each other, with shapes that do, must lie side by side: these have the
// same slot - shape, up to whole blocks where the shape begins anew. So every slot - shape that is
// used gets a block, and those that differ by a whole block get neighbours. Only what is touched
// takes memory. A slot that holds data of several shapes in turn has a chunk for each.
#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "compile/passes.h"

namespace unisono::compile {
namespace {

using plan::Buffer;

class Placement {
 public:
  explicit Placement(Module& module)
      : module_(module),
        chunks_(module.header.chunks_per_block),
        diagonals_(at(module.header.ranks)) {}

  Status run() {
    for_each_location([&](std::int32_t rank, std::int32_t& chunk, std::int32_t count) {
      const std::int64_t last = (chunk % chunks_ + count - 1) / chunks_;
      for (std::int64_t block = 0; block <= last; ++block)
        use(rank, diagonal(chunk) + block * chunks_);
    });
    for (std::vector<std::int64_t>& used : diagonals_) {
      sort(used);
      used.erase(std::unique(used.begin(), used.end()), used.end());
      module_.scratch_blocks.push_back(static_cast<int>(used.size()));
      if (used.size() * at(chunks_) > std::size_t{1} << 30)
        return misuse("program ", module_.header.name, ": ", used.size(),
                      " blocks of scratch on a rank are too many; use less scratch");
    }
    for_each_location([&](std::int32_t rank, std::int32_t& chunk, std::int32_t) {
      const std::vector<std::int64_t>& used = diagonals_[at(rank)];
      const auto block =
          std::lower_bound(used.begin(), used.end(), diagonal(chunk),
                           [&](std::int64_t a, std::int64_t b) { return order(a) < order(b); });
      chunk = static_cast<std::int32_t>((block - used.begin()) * chunks_ + chunk % chunks_);
    });
    return {};
  }

 private:
  std::int64_t diagonal(std::int32_t chunk) const {
    return chunk / chunks_ - chunk % chunks_ + chunks_;
  }
  std::tuple<std::int64_t, std::int64_t> order(std::int64_t diagonal) const {
    return {diagonal % chunks_, diagonal};
  }
  void sort(std::vector<std::int64_t>& used) const {
    std::ranges::sort(used, {}, [&](std::int64_t d) { return order(d); });
  }

  void use(std::int32_t rank, std::int64_t diagonal) {
    std::vector<std::int64_t>& used = diagonals_[at(rank)];
    if (!used.empty() && used.back() == diagonal) return;
    used.push_back(diagonal);
    // Many instructions, few diagonals.
    if (used.size() < 1024 || (used.size() & (used.size() - 1)) != 0) return;
    sort(used);
    used.erase(std::unique(used.begin(), used.end()), used.end());
  }

  template <class Visit>
  void for_each_location(Visit visit) {
    for (std::size_t i = 0; i < module_.instruction_count(); ++i) {
      Instruction& one = module_.instructions[i];
      if (one.source_buffer == Buffer::scratch && plan::reads_source(one.operation))
        visit(one.source_rank(), one.source, one.count);
      if (one.destination_buffer == Buffer::scratch && plan::writes_destination(one.operation))
        visit(one.destination_rank(), one.destination, one.count);
    }
  }

  Module& module_;
  std::int64_t chunks_;
  std::vector<std::vector<std::int64_t>>
      diagonals_;  // by rank: slot - shape + chunks_ of each block
};

}  // namespace

Status place(Module& module) { return Placement(module).run(); }

}  // namespace unisono::compile
