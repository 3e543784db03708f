#include "engine/gpu/lower.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "engine/gpu/address_exchange.h"
#include "plan/walk.h"

namespace unisono::engine::gpu {
namespace {

using plan::Operation;

constexpr std::size_t largest_element_bytes = 8;

std::uint8_t flags_of(Operation operation) {
  unsigned flags = 0;
  if (plan::receives(operation)) flags |= device::takes_message;
  if (plan::reads_source(operation)) flags |= device::takes_source;
  if (operation == Operation::reduce) flags |= device::takes_destination;
  if (plan::writes_destination(operation)) flags |= device::gives_destination;
  if (plan::sends(operation)) flags |= device::gives_message;
  return static_cast<std::uint8_t>(flags);
}

class Lowering {
 public:
  Lowering(const plan::Header& header, const plan::RankProgram& program) : header_(header) {
    for (const plan::ThreadBlock& block : program.thread_blocks) {
      std::vector<std::int64_t>& steps = barriers_.emplace_back();
      for (plan::StepCursor cursor(block.body); cursor.step() != nullptr; cursor.advance())
        if (cursor.step()->operation == Operation::barrier) steps.push_back(cursor.number());
    }
  }

  Status add(const plan::ThreadBlock& block) {
    device::Block lowered{.first_step = static_cast<std::uint32_t>(out_.steps.size()),
                          .steps = 0,
                          .send_link = index_of(block.send_peer, block.channel, out_.connections),
                          .recv_link = index_of(block.recv_peer, block.channel, out_.connections),
                          .sends = 0,
                          .receives = 0};
    std::size_t barrier = 0;
    for (plan::StepCursor cursor(block.body); cursor.step() != nullptr; cursor.advance()) {
      UNISONO_TRY(add(*cursor.step(), cursor.loops(), cursor.number()));
      if (cursor.step()->operation == Operation::barrier) wait_for_others(barrier++);
    }
    lowered.steps = static_cast<std::uint32_t>(out_.steps.size()) - lowered.first_step;
    out_.blocks.push_back(lowered);
    return {};
  }

  LoweredProgram take() {
    for (const device::Dependency& dependency : out_.dependencies) {
      const device::Block& block = out_.blocks[static_cast<std::size_t>(dependency.block)];
      const auto last = static_cast<std::uint32_t>(dependency.steps - 1);
      out_.steps[block.first_step + last].flags |= device::publishes;
    }
    return std::move(out_);
  }

 private:
  Status add(const plan::Step& step, const plan::LoopValues& loops, std::int64_t number) {
    device::Step lowered{};
    lowered.flags = flags_of(step.operation);
    lowered.source_buffer = static_cast<std::uint8_t>(step.source.buffer);
    lowered.destination_buffer = static_cast<std::uint8_t>(step.destination.buffer);
    const bool moves =
        plan::reads_source(step.operation) || plan::writes_destination(step.operation);
    out_.has_tokens |= plan::is_one_sided(step.operation);
    lowered.count = static_cast<std::uint16_t>(moves ? step.count : 0);
    lowered.source = static_cast<std::int32_t>(step.source.index.at(loops));
    lowered.destination = static_cast<std::int32_t>(step.destination.index.at(loops));
    lowered.number = static_cast<std::int32_t>(number);
    // The kernels move chunk by chunk: a chunk and what it is combined with or copied to must be of
    // one size, which their place in their blocks decides.
    if (plan::reads_source(step.operation) && plan::writes_destination(step.operation) &&
        (lowered.source - lowered.destination) % header_.chunks_per_block != 0)
      return misuse("plan ", header_.name, " has a ", plan::name(step.operation), " from chunk ",
                    lowered.source, " to chunk ", lowered.destination,
                    "; on the GPU engine both must have the same position in their blocks of ",
                    header_.chunks_per_block, " chunks");
    lowered.first_dependency = static_cast<std::uint32_t>(out_.dependencies.size());
    for (const plan::Dependency& after : step.after) {
      const std::int64_t steps = after.steps.at(loops);
      if (steps <= 0) continue;
      out_.dependencies.push_back({after.thread_block, static_cast<std::int32_t>(steps)});
      ++lowered.dependencies;
    }
    out_.steps.push_back(lowered);
    return {};
  }

  // The step that was added last is a block's barrier of this number: it waits for what all others
  // do before theirs.
  void wait_for_others(std::size_t number) {
    device::Step& step = out_.steps.back();
    const std::size_t own = out_.blocks.size();
    for (std::size_t other = 0; other < barriers_.size(); ++other) {
      if (other == own || number >= barriers_[other].size()) continue;
      const auto steps = static_cast<std::int32_t>(barriers_[other][number]);
      if (steps == 0) continue;
      out_.dependencies.push_back({static_cast<std::int32_t>(other), steps});
      ++step.dependencies;
    }
  }

  const plan::Header& header_;
  std::vector<std::vector<std::int64_t>> barriers_;  // by block: the numbers of such steps
  LoweredProgram out_;
};

}  // namespace

std::int32_t index_of(int peer, int channel, std::vector<ProgramConnection>& all) {
  if (peer < 0) return -1;
  const ProgramConnection wanted{peer, channel};
  const auto found = std::ranges::find(all, wanted);
  const auto index = static_cast<std::int32_t>(found - all.begin());
  if (found == all.end()) all.push_back(wanted);
  return index;
}

plan::Limits limits() {
  using enum plan::Operation;
  plan::Limits out = plan::format_limits();
  out.executor = "GPU engine";
  // All must be on the device at once, because they wait for each other; an H100 has 132
  // SMs, and make_execution() asks the device.
  out.max_thread_blocks = 128;
  // Counted over tiles, steps have 32 bits: enough for 2^16 tiles, 8 GiB of 128 KiB each.
  out.max_steps = 1 << 16;
  out.max_step_count = UINT16_MAX;
  out.operations = bit(send) | bit(recv) | bit(copy) | bit(reduce) | bit(copy_send) |
                   bit(recv_copy_send) | bit(recv_reduce_copy) | bit(recv_reduce_send) |
                   bit(recv_reduce_copy_send) | bit(signal) | bit(wait) | bit(barrier);
  return out;
}

Result<LoweredProgram> lower(const plan::Header& header, const plan::RankProgram& program) {
  UNISONO_TRY(plan::check(header, program, limits()));
  Lowering lowering(header, program);
  for (const plan::ThreadBlock& block : program.thread_blocks) UNISONO_TRY(lowering.add(block));
  LoweredProgram lowered = lowering.take();
  mark_addresses(header, program, lowered);
  return lowered;
}

Result<LoweredProgram> lower_for(const Options& options, int max_blocks, const plan::Header& header,
                                 const plan::RankProgram& program) {
  UNISONO_ASSIGN(LoweredProgram lowered, lower(header, program));
  if (lowered.blocks.size() > static_cast<std::size_t>(max_blocks))
    return misuse("plan ", header.name, " has ", lowered.blocks.size(), " thread blocks on rank ",
                  program.rank, ", which wait for each other; its CUDA device runs ", max_blocks,
                  " at once");
  const std::size_t needed = static_cast<std::size_t>(header.max_step_count) *
                             std::max(device::ll128_line_bytes, largest_element_bytes);
  if (needed > options.slot_bytes)
    return misuse("plan ", header.name, " sends ", header.max_step_count,
                  " chunks in one message, which need ", needed, " bytes of a slot; it has ",
                  options.slot_bytes);
  return lowered;
}

}  // namespace unisono::engine::gpu
