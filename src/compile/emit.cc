#include "compile/emit.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "plan/walk.h"

namespace unisono::compile {
namespace {

using plan::Buffer;

// How many steps may make the body of a loop.
constexpr std::size_t most_in_body = 4;
// Fewer steps than this are not worth a loop.
constexpr std::size_t fewest_in_loop = 3;

class BlockEmitter {
 public:
  BlockEmitter(const Module& module, const Block& block,
               const std::vector<std::int32_t>& first_wait)
      : module_(module), order_(block.order), first_wait_(first_wait) {}

  plan::Body emit() {
    plan::Body body;
    for (std::size_t i = 0; i < order_.size();) {
      std::size_t best_length = 0;
      std::size_t best_period = 0;
      for (std::size_t period = 1; period <= most_in_body; ++period) {
        const std::size_t length = run_of(i, period);
        if (length > best_length) best_length = length, best_period = period;
        // Longer bodies could only repeat it.
        if (best_length >= 2 * most_in_body) break;
      }
      if (best_length < std::max(fewest_in_loop, 2 * best_period)) {
        body.emplace_back(step(i));
        ++i;
        continue;
      }
      plan::Loop loop;
      loop.count = static_cast<std::int64_t>(best_length / best_period);
      for (std::size_t j = 0; j < best_period; ++j)
        loop.body.emplace_back(looped_step(i + j, best_period));
      body.emplace_back(std::move(loop));
      i += best_length;
    }
    return body;
  }

 private:
  const Instruction& it(std::size_t i) const { return module_.instructions[at(order_[i])]; }
  bool waits(std::size_t i) const {
    return first_wait_[at(order_[i])] != first_wait_[at(order_[i]) + 1];
  }

  std::int64_t chunks_of(Buffer buffer, std::int32_t rank) const {
    const std::int64_t per_block = module_.header.chunks_per_block;
    if (buffer == Buffer::input) return plan::input_blocks_of(module_.header, rank) * per_block;
    if (buffer == Buffer::output) return plan::output_blocks_of(module_.header, rank) * per_block;
    return module_.scratch_blocks[at(rank)] * per_block;
  }

  static bool alike(const Instruction& a, const Instruction& b) {
    return a.operation == b.operation && a.source_buffer == b.source_buffer &&
           a.destination_buffer == b.destination_buffer && a.count == b.count &&
           a.read_peer == b.read_peer;
  }

  // Whether c follows b as b follows a, the buffer taken as a ring of `chunks`.
  static bool advances(std::int32_t a, std::int32_t b, std::int32_t c, std::int64_t chunks) {
    const std::int64_t difference = std::int64_t{c} - b - (std::int64_t{b} - a);
    return difference == 0 || difference == chunks || difference == -chunks;
  }

  // Steps from i on, a multiple of `period`, that a loop with a body of `period` steps can be.
  std::size_t run_of(std::size_t i, std::size_t period) const {
    std::size_t length = 0;
    for (std::size_t j = i; j < order_.size() && !waits(j); ++j, ++length) {
      if (j < i + period) continue;
      const Instruction& before = it(j - period);
      const Instruction& one = it(j);
      if (!alike(before, one)) break;
      if (j < i + 2 * period) continue;
      const Instruction& first = it(j - 2 * period);
      if (!advances(first.source, before.source, one.source,
                    chunks_of(one.source_buffer, one.source_rank())) ||
          !advances(first.destination, before.destination, one.destination,
                    chunks_of(one.destination_buffer, one.destination_rank())))
        break;
    }
    return length / period * period;
  }

  plan::Step step(std::size_t i) const {
    const Instruction& one = it(i);
    plan::Step out;
    out.operation = one.operation;
    if (plan::reads_source(one.operation)) out.source = {one.source_buffer, one.source};
    if (plan::writes_destination(one.operation))
      out.destination = {one.destination_buffer, one.destination};
    out.count = one.count;
    if (one.read_peer != none) out.peers = {one.read_peer};
    for (std::int32_t w = first_wait_[at(order_[i])]; w < first_wait_[at(order_[i]) + 1]; ++w) {
      const Wait& wait = module_.waits[at(w)];
      out.after.push_back({wait.block, wait.steps});
    }
    return out;
  }

  plan::Index index(std::int32_t first, std::int32_t second, std::int64_t chunks) const {
    plan::Index out(first);
    std::int64_t stride = second - first;
    if (stride == 0) return out;
    // The shorter way round.
    if (stride > chunks / 2) stride -= chunks;
    if (stride < -chunks / 2) stride += chunks;
    out.coefficient[0] = stride;
    out.modulus = chunks;
    return out;
  }

  plan::Step looped_step(std::size_t i, std::size_t period) const {
    plan::Step out = step(i);
    const Instruction& one = it(i);
    const Instruction& next = it(i + period);
    if (plan::reads_source(one.operation))
      out.source.index =
          index(one.source, next.source, chunks_of(one.source_buffer, one.source_rank()));
    if (plan::writes_destination(one.operation))
      out.destination.index = index(one.destination, next.destination,
                                    chunks_of(one.destination_buffer, one.destination_rank()));
    return out;
  }

  const Module& module_;
  const std::vector<std::int32_t>& order_;
  const std::vector<std::int32_t>& first_wait_;
};

// By instruction, and one more: where its waits begin. Sorts them so.
std::vector<std::int32_t> index_waits(Module& module) {
  std::vector<Wait>& waits = module.waits;
  std::ranges::stable_sort(waits, {}, &Wait::instruction);
  std::vector<std::int32_t> first(module.instruction_count() + 1);
  for (const Wait& wait : waits) ++first[at(wait.instruction) + 1];
  for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  return first;
}

}  // namespace

plan::Plan emit(Module& module) {
  plan::Plan plan;
  plan.header = module.header;
  plan.programs.reserve(at(module.header.ranks));
  const std::vector<std::int32_t> first_wait = index_waits(module);
  for (int rank = 0; rank < module.header.ranks; ++rank) {
    plan::RankProgram& program = plan.programs.emplace_back();
    program.rank = rank;
    program.scratch_blocks = module.scratch_blocks[at(rank)];
    for (std::int32_t i = module.first_block[at(rank)]; i < module.first_block[at(rank) + 1]; ++i) {
      const Block& block = module.blocks[at(i)];
      program.thread_blocks.push_back({block.channel, block.send_peer, block.recv_peer,
                                       BlockEmitter(module, block, first_wait).emit()});
    }
  }
  plan.header.max_step_count = plan::max_step_count(plan);
  return plan;
}

}  // namespace unisono::compile
