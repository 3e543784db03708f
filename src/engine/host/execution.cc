#include "engine/host/execution.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"

namespace unisono::engine {
namespace {

constexpr std::size_t largest_element_bytes = 8;
// Bounds the memory of a short run: some 30 KiB of a plan.
constexpr std::size_t max_short_steps = 512;
constexpr int idle_polls_between_progress = 16;

}  // namespace

plan::Limits limits() {
  plan::Limits out = plan::format_limits();
  out.executor = "host engine";
  return out;
}

Result<transport::Connection*> Resources::connection(int peer, int channel) {
  return bug("the connection to rank ", peer, " on channel ", channel,
             " was requested by a group of messages, which has none");
}

Result<std::unique_ptr<Execution>> make_execution(
    const plan::Header& header, const plan::RankProgram& program, Resources& resources,
    const transport::FifoOptions& options, const Tiling& tiling, std::span<const int> partners) {
  UNISONO_TRY(plan::check(header, program, limits()));
  const std::size_t payload = transport::slot_payload_bytes(options, header.protocol);
  const std::size_t needed =
      static_cast<std::size_t>(header.max_step_count) * largest_element_bytes;
  if (needed > payload)
    return misuse("plan ", header.name, " sends ", header.max_step_count,
                  " chunks in one message, which need ", needed, " bytes of a slot; a slot of ",
                  name(header.protocol), " holds ", payload,
                  ". Use another protocol or larger slots");
  return std::unique_ptr<Execution>(
      std::make_unique<HostExecution>(header, program, resources, options, tiling, partners));
}

HostExecution::HostExecution(plan::Header header, plan::RankProgram program, Resources& resources,
                             const transport::FifoOptions& options, const Tiling& tiling,
                             std::span<const int> partners)
    : header_(std::move(header)),
      program_(std::move(program)),
      one_sided_(partners, options),
      slots_(options.slots),
      slot_payload_bytes_(transport::slot_payload_bytes(options, header_.protocol)),
      tiling_(tiling) {
  call_.header = &header_;
  call_.program = &program_;
  call_.resources = &resources;
  call_.one_sided = &one_sided_;
  call_.arithmetic.meter().set_on(resources.is_time_real());
  if (options.zero_copy) call_.least_offered_bytes = options.zero_copy_min_bytes;
  call_.least_direct_bytes = transport::least_direct_bytes(options);
  call_.blocks.reserve(program_.thread_blocks.size());
  for (std::size_t i = 0; i < program_.thread_blocks.size(); ++i)
    call_.blocks.emplace_back(program_.thread_blocks[i], static_cast<int>(i));
}

Status HostExecution::check(const Arguments& arguments) const {
  const auto rank = program_.rank;
  if (running_) return bug("rank ", rank, " started plan ", header_.name, " while it was running");
  if (arguments.count < 0)
    return misuse("count is ", arguments.count, " on rank ", rank, "; it must be 0 or more");
  if (!arguments.is_uneven()) return {};
  if (one_sided_.has_partners())
    return misuse("plan ", header_.name,
                  " has one-sided steps, which cannot run on blocks of unequal size");
  const auto inputs = static_cast<std::size_t>(plan::input_blocks_of(header_, rank));
  const auto outputs = static_cast<std::size_t>(plan::output_blocks_of(header_, rank));
  if (program_.scratch_blocks > 0)
    return misuse("plan ", header_.name,
                  " needs scratch blocks, which cannot run on blocks of unequal size");
  if (arguments.inputs.counts.size() != inputs || arguments.inputs.displacements.size() != inputs ||
      arguments.outputs.counts.size() != outputs ||
      arguments.outputs.displacements.size() != outputs)
    return misuse("rank ", rank, " gave counts for ", arguments.inputs.counts.size(), " input and ",
                  arguments.outputs.counts.size(), " output blocks; plan ", header_.name, " has ",
                  inputs, " input and ", outputs, " output blocks");
  return {};
}

bool HostExecution::is_like_last(const Arguments& arguments) const {
  return has_run_ && !running_ && arguments.count == arguments_.count &&
         arguments.type == arguments_.type && arguments.operation == arguments_.operation &&
         !arguments.is_uneven() && !arguments_.is_uneven();
}

Result<void*> HostExecution::scratch(const Arguments& arguments) {
  if (program_.scratch_blocks == 0 || arguments.count == 0) return nullptr;
  return call_.resources->scratch(static_cast<std::size_t>(program_.scratch_blocks) *
                                  static_cast<std::size_t>(arguments.count) *
                                  size_bytes(arguments.type));
}

Status HostExecution::start(const Arguments& arguments) {
  call_.id = arguments.call;
  call_.arithmetic.meter().begin();
  if (is_like_last(arguments)) return start_like_last(arguments);
  UNISONO_TRY(check(arguments));
  UNISONO_ASSIGN(void* const scratch, this->scratch(arguments));
  arguments_ = arguments;
  repeats_ = 0;
  short_run_.clear();
  call_.memory.bind(header_, arguments, scratch, tile_elements(arguments));
  call_.tiles = call_.memory.tiles(header_, program_.rank);
  call_.arithmetic.bind(header_, program_.rank, arguments);
  has_run_ = true;
  return start_blocks();
}

Status HostExecution::start_like_last(const Arguments& arguments) {
  void* scratch = nullptr;
  if (program_.scratch_blocks > 0) {
    UNISONO_ASSIGN(scratch, this->scratch(arguments));
  }
  arguments_.input = arguments.input;
  arguments_.output = arguments.output;
  call_.memory.rebase(arguments, scratch);
  if (call_.arithmetic.scales_input()) {
    arguments_.pre_multiplier = arguments.pre_multiplier;
    call_.arithmetic.bind(header_, program_.rank, arguments);
  }
  // The second of its shape is worth it.
  if (++repeats_ == 1) short_run_.lay_out(call_, max_short_steps);
  if (short_run_.is_laid_out()) {
    short_run_.start(call_);
    running_ = true;
    return {};
  }
  return start_blocks();
}

Status HostExecution::start_blocks() {
  one_sided_.start(call_);
  for (ThreadBlockRun& block : call_.blocks) {
    block.start(call_.id);
    if (call_.tiles > 0) UNISONO_TRY(block.join_connections(call_));
  }
  running_ = true;
  return {};
}

std::int64_t HostExecution::tile_elements(const Arguments& arguments) const {
  const std::size_t element_bytes = size_bytes(arguments.type);
  // Ranks know only their own counts where blocks are unequal.
  const auto layout = plan::ChunkLayout::of(arguments.count, header_.chunks_per_block,
                                            static_cast<std::int64_t>(element_bytes));
  return CallMemory::tile_elements(slot_payload_bytes_, header_.max_step_count, element_bytes,
                                   layout.elements(0), arguments.is_uneven() ? Tiling{} : tiling_);
}

Result<bool> HostExecution::poll() { return runs_short() ? poll_short() : poll_blocks(); }

Result<bool> HostExecution::poll_short() {
  const ShortRun::Polled polled = short_run_.poll();
  progressed_ = short_run_.progressed();
  if (polled == ShortRun::Polled::complete) {
    complete();
    return true;
  }
  if (polled == ShortRun::Polled::failed) [[unlikely]]
    return short_run_.take_failure().take_error();
  // What other calls still have to move, on connections that are not mapped.
  if (!progressed_ && ++idle_polls_ % idle_polls_between_progress == 0) {
    short_run_.settle();
    UNISONO_TRY(call_.resources->progress());
  }
  return false;
}

Result<bool> HostExecution::poll_blocks() {
  UNISONO_ASSIGN(progressed_, one_sided_.advance(call_));
  bool done = true;
  for (ThreadBlockRun& block : call_.blocks) {
    if (block.done(call_)) {
      UNISONO_TRY(block.push());
      continue;
    }
    UNISONO_ASSIGN(const bool moved, block.advance(call_));
    progressed_ |= moved;
    done &= block.done(call_);
  }
  if (done) {
    UNISONO_ASSIGN(done, blocks_finished());
  }
  if (!done && !progressed_) UNISONO_TRY(call_.resources->progress());
  if (done) complete();
  return done;
}

Result<bool> HostExecution::blocks_finished() {
  bool all = true;
  for (ThreadBlockRun& block : call_.blocks) {
    UNISONO_ASSIGN(const bool finished, block.finished(call_));
    all &= finished;
  }
  if (!all) return false;
  return one_sided_.depart(call_);
}

void HostExecution::complete() {
  running_ = false;
  if (!call_.arithmetic.divides_result()) return;
  const bool holds_result =
      header_.collective != Collective::reduce || program_.rank == header_.root;
  const int blocks = holds_result ? plan::output_blocks_of(header_, program_.rank) : 0;
  call_.arithmetic.divide(static_cast<std::byte*>(arguments_.output),
                          static_cast<std::size_t>(blocks) *
                              static_cast<std::size_t>(arguments_.count) *
                              size_bytes(arguments_.type),
                          header_.ranks);
}

std::size_t HostExecution::memory_bytes() const {
  std::size_t bytes = sizeof *this + call_.arithmetic.memory_bytes();
  for (const plan::ThreadBlock& block : program_.thread_blocks)
    bytes += sizeof(ThreadBlockRun) + sizeof block + plan::memory_bytes(block.body);
  return bytes + short_run_.memory_bytes();
}

Waiting HostExecution::waiting() const {
  const std::vector<Waiting> all = waits();
  const auto behind = [](const Waiting& a, const Waiting& b) {
    return a.tile != b.tile ? a.tile < b.tile : a.step < b.step;
  };
  return all.empty() ? Waiting{} : *std::ranges::min_element(all, behind);
}

std::vector<Waiting> HostExecution::waits() const {
  if (runs_short()) return short_run_.waits();
  std::vector<Waiting> out;
  for (const ThreadBlockRun& block : call_.blocks)
    if (block.waiting().waits_outside()) out.push_back(block.waiting());
  if (out.empty()) out = one_sided_.waits();
  return out;
}

bool HostExecution::awaits(int peer) const {
  if (runs_short()) return short_run_.awaits(peer);
  return std::ranges::any_of(call_.blocks, [&](const ThreadBlockRun& block) {
    return block.waiting().kind != Waiting::Kind::nothing && block.waiting().peer == peer;
  });
}

// A short run has mapped memory only.
bool HostExecution::awaits_event() const {
  if (runs_short()) return false;
  return one_sided_.has_partners() ||
         std::ranges::any_of(call_.blocks,
                             [](const ThreadBlockRun& block) { return block.awaits_event(); });
}

bool HostExecution::awaits_memory() const {
  return runs_short() || one_sided_.has_partners() ||
         std::ranges::any_of(call_.blocks,
                             [](const ThreadBlockRun& block) { return block.awaits_memory(); });
}

}  // namespace unisono::engine
