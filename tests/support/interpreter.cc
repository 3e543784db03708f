#include "support/interpreter.h"

#include <algorithm>
#include <utility>

#include "base/str.h"
#include "plan/chunk_layout.h"
#include "support/interpreter_run.h"

namespace unisono::test {
namespace interpreter {

Run::Run(const plan::Plan& plan, const RunOptions& options)
    : plan_(plan), header_(plan.header), options_(options), random_(options.seed) {
  for (const plan::RankProgram& program : plan.programs) {
    first_block_.push_back(blocks_.size());
    factors_.push_back(is_reduction(header_.collective) ? random_() | 1 : 1);
    for (const plan::ThreadBlock& thread_block : program.thread_blocks) {
      Block block{.thread_block = &thread_block, .rank = program.rank};
      for (plan::StepCursor at(thread_block.body); at.step(); at.advance())
        block.steps.push_back({at.step(), at.loops()});
      blocks_.push_back(std::move(block));
    }
  }
  first_block_.push_back(blocks_.size());
  choose_counts();
  memory_.resize(static_cast<std::size_t>(options.tiles));
  inputs_.resize(memory_.size());
  for (std::size_t tile = 0; tile < memory_.size(); ++tile) fill(tile);
}

void Run::choose_counts() {
  counts_.assign(static_cast<std::size_t>(header_.ranks) * static_cast<std::size_t>(header_.ranks),
                 options_.count);
  if (header_.collective != Collective::all_to_all_v) return;
  for (std::int64_t& count : counts_)
    count = static_cast<std::int64_t>(below(static_cast<std::uint64_t>(options_.count) + 1));
  if (!header_.in_place) return;
  for (int a = 0; a < header_.ranks; ++a)
    for (int b = 0; b < a; ++b) pair_count(a, b) = pair_count(b, a);
}

std::int64_t Run::size_of(int rank, Buffer buffer, std::int64_t chunk) {
  const std::int64_t block = chunk / header_.chunks_per_block;
  std::int64_t count = options_.count;
  if (header_.collective == Collective::all_to_all_v) {
    if (buffer == Buffer::scratch) return -1;
    const int other = static_cast<int>(block);
    count = buffer == Buffer::input ? pair_count(rank, other) : pair_count(other, rank);
  }
  return plan::ChunkLayout::of(count, header_.chunks_per_block, 8)
      .elements(chunk % header_.chunks_per_block);
}

void Run::fill(std::size_t tile) {
  const int t = static_cast<int>(tile);
  for (const plan::RankProgram& program : plan_.programs) {
    const int rank = program.rank;
    const std::int64_t chunks = header_.chunks_per_block;
    const auto poison = [&](Buffer buffer, std::int64_t blocks) {
      for (std::int64_t i = 0; i < blocks * chunks; ++i) {
        Chunk& chunk = memory(t, rank, buffer, i);
        chunk.resize(static_cast<std::size_t>(std::max<std::int64_t>(size_of(rank, buffer, i), 0)));
        for (Element& element : chunk) element = number(random_());
      }
    };
    poison(Buffer::scratch, program.scratch_blocks);
    poison(Buffer::output, plan::output_blocks_of(header_, rank));
    poison(Buffer::input, plan::input_blocks_of(header_, rank));
    if (!has_input(rank)) continue;
    std::vector<Chunk>& copy = inputs_[tile][rank];
    for (std::int64_t i = 0; i < plan::input_blocks_of(header_, rank) * chunks; ++i)
      copy.push_back(memory(t, rank, Buffer::input, i));
  }
}

std::optional<std::string> Run::run(int asleep) {
  for (Block& block : blocks_) block.eagerness = random_();
  std::vector<std::size_t> candidates;
  const auto all = [&] {
    candidates.clear();
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      if (!ended(i) && blocks_[i].rank != asleep) candidates.push_back(i);
  };
  all();
  while (!candidates.empty()) {
    const std::size_t at = choose(candidates);
    const bool progress = try_step(candidates[at]);
    if (fault_) return fault_;
    if (progress) {
      all();
    } else {
      candidates[at] = candidates.back();
      candidates.pop_back();
    }
  }
  return asleep < 0 ? judge() : judge_barrier(asleep);
}

std::size_t Run::choose(const std::vector<std::size_t>& candidates) {
  if (below(4) == 0) return below(candidates.size());
  std::size_t best = 0;
  for (std::size_t i = 1; i < candidates.size(); ++i)
    if (blocks_[candidates[i]].eagerness > blocks_[candidates[best]].eagerness) best = i;
  return best;
}

bool Run::fault(const Block& block, const std::string& what) {
  fault_ = str("rank ", block.rank, " thread block ",
               &block - &blocks_[first_block_[static_cast<std::size_t>(block.rank)]], " step ",
               block.next, ": ", what);
  return false;
}

bool Run::try_step(std::size_t index) {
  Block& block = blocks_[index];
  if (block.steps.empty()) {
    skip_tiles(block);
    return true;
  }
  const Unrolled& now = block.steps[block.next];
  const auto rank = static_cast<std::size_t>(block.rank);
  for (const plan::Dependency& on : now.step->after)
    if (!has_reached(blocks_[first_block_[rank] + static_cast<std::size_t>(on.thread_block)],
                     block.tile, on.steps.at(now.loops)))
      return false;
  if (now.step->operation == Operation::barrier) return try_barrier(block);
  if (std::exchange(block.has_pending, false)) {
    write(std::exchange(block.pending, {}));
    finish_step(block);
    return true;
  }
  if (!execute(block, *now.step, now.loops)) return false;
  block.has_pending = true;
  return true;
}

bool Run::try_barrier(Block& block) {
  const bool is_new = !std::exchange(block.at_barrier, true);
  const auto rank = static_cast<std::size_t>(block.rank);
  for (std::size_t i = first_block_[rank]; i < first_block_[rank + 1]; ++i)
    if (!blocks_[i].at_barrier || blocks_[i].tile != block.tile) return is_new;
  for (std::size_t i = first_block_[rank]; i < first_block_[rank + 1]; ++i) {
    blocks_[i].at_barrier = false;
    finish_step(blocks_[i]);
  }
  return true;
}

}  // namespace interpreter

using interpreter::Run;

std::optional<std::string> run_once(const plan::Plan& plan, const RunOptions& options) {
  if (auto wrong = Run(plan, options).run(-1)) return wrong;
  if (plan.header.collective != Collective::barrier) return std::nullopt;
  for (int asleep = 0; asleep < plan.header.ranks; ++asleep)
    if (auto wrong = Run(plan, options).run(asleep)) return wrong;
  return std::nullopt;
}

std::optional<std::string> find_fault(const plan::Plan& plan, int runs, std::uint64_t seed,
                                      int least_slots) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  const std::int64_t chunks = plan.header.chunks_per_block;
  for (int i = 0; i < runs; ++i) {
    RunOptions options;
    options.seed = random();
    options.slots = least_slots + (i % 2 == 0 ? 0 : static_cast<int>(below(8)));
    options.tiles = 1 + static_cast<int>(below(2));
    options.zero_copy = below(2) == 0;
    // Up to one element a chunk tells every chunk from those before it; more makes them ragged.
    options.count = i % 3 == 0 ? chunks : 1 + below(below(2) == 0 ? chunks : 4 * chunks);
    if (auto wrong = run_once(plan, options))
      return str(*wrong, " (seed ", options.seed, ", slots ", options.slots, ", tiles ",
                 options.tiles, options.zero_copy ? ", zero copy" : "", ", count ", options.count,
                 ")");
  }
  return std::nullopt;
}

}  // namespace unisono::test
