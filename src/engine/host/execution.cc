#include "engine/host/execution.h"

#include "base/error.h"
#include "base/try.h"

namespace unisono::engine {
namespace {

constexpr std::size_t largest_element_bytes = 8;
// Bounds the memory of placed steps: some 30 KiB of a plan.
constexpr std::size_t max_placed_steps = 512;

bool is_uneven(const Arguments& arguments) {
  return !arguments.input_counts.empty() || !arguments.output_counts.empty();
}

constexpr std::uint32_t bit(plan::Operation operation) {
  return std::uint32_t{1} << static_cast<unsigned>(operation);
}

}  // namespace

plan::Limits limits() {
  using enum plan::Operation;
  plan::Limits out = plan::format_limits();
  out.executor = "host engine";
  out.operations = bit(send) | bit(recv) | bit(copy) | bit(reduce) | bit(copy_send) |
                   bit(recv_copy_send) | bit(recv_reduce_copy) | bit(recv_reduce_send) |
                   bit(recv_reduce_copy_send);
  return out;
}

Result<std::unique_ptr<Execution>> make_execution(const plan::Header& header,
                                                  const plan::RankProgram& program,
                                                  Resources& resources,
                                                  const transport::FifoOptions& options,
                                                  int tiles) {
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
      std::make_unique<HostExecution>(header, program, resources, payload, tiles));
}

HostExecution::HostExecution(plan::Header header, plan::RankProgram program, Resources& resources,
                             std::size_t slot_payload_bytes, int tiles)
    : header_(std::move(header)),
      program_(std::move(program)),
      slot_payload_bytes_(slot_payload_bytes),
      tiles_(tiles) {
  call_.header = &header_;
  call_.program = &program_;
  call_.resources = &resources;
  call_.blocks.reserve(program_.thread_blocks.size());
  for (std::size_t i = 0; i < program_.thread_blocks.size(); ++i)
    call_.blocks.emplace_back(program_.thread_blocks[i], static_cast<int>(i));
}

Status HostExecution::check(const Arguments& arguments) const {
  const auto rank = program_.rank;
  if (running_) return bug("rank ", rank, " started plan ", header_.name, " while it was running");
  if (arguments.count < 0)
    return misuse("count is ", arguments.count, " on rank ", rank, "; it must be 0 or more");
  if (!is_uneven(arguments)) return {};
  const auto inputs = static_cast<std::size_t>(plan::input_blocks_of(header_, rank));
  const auto outputs = static_cast<std::size_t>(plan::output_blocks_of(header_, rank));
  if (program_.scratch_blocks > 0)
    return misuse("plan ", header_.name,
                  " needs scratch blocks, which blocks of unequal size "
                  "do not allow");
  if (arguments.input_counts.size() != inputs || arguments.input_displacements.size() != inputs ||
      arguments.output_counts.size() != outputs || arguments.output_displacements.size() != outputs)
    return misuse("rank ", rank, " gave counts for ", arguments.input_counts.size(), " input and ",
                  arguments.output_counts.size(), " output blocks; plan ", header_.name, " has ",
                  inputs, " and ", outputs);
  return {};
}

void HostExecution::bind(const Arguments& arguments, void* scratch) {
  repeats_ = 0;
  call_.is_placed = false;
  call_.memory.bind(header_, arguments, scratch, tile_elements(arguments));
  call_.tiles = call_.memory.tiles(header_, program_.rank);
}

void HostExecution::bind_like_last(const Arguments& arguments, void* scratch) {
  call_.memory.rebase(arguments, scratch);
  // The second of its shape is worth it; more of them need it no more.
  if (++repeats_ != 1 || call_.tiles != 1) return;
  std::size_t left = max_placed_steps;
  call_.is_placed = true;
  for (ThreadBlockRun& block : call_.blocks) {
    call_.is_placed = call_.is_placed && block.place(call_, left);
    left -= block.placed().size();
  }
}

Status HostExecution::start(const Arguments& arguments) {
  UNISONO_TRY(check(arguments));
  const std::size_t element_bytes = size_bytes(arguments.type);
  const bool is_like_last = has_run_ && arguments.count == arguments_.count &&
                            arguments.type == arguments_.type && !is_uneven(arguments) &&
                            !is_uneven(arguments_);
  arguments_ = arguments;
  void* scratch = nullptr;
  if (program_.scratch_blocks > 0 && arguments.count > 0) {
    UNISONO_ASSIGN(scratch, call_.resources->scratch(
                                static_cast<std::size_t>(program_.scratch_blocks) *
                                static_cast<std::size_t>(arguments.count) * element_bytes));
  }
  if (is_like_last)
    bind_like_last(arguments, scratch);
  else
    bind(arguments, scratch);
  call_.arithmetic.bind(header_, arguments);
  has_run_ = true;
  for (ThreadBlockRun& block : call_.blocks) {
    block.start(call_);
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
                                   layout.elements(0), is_uneven(arguments) ? 1 : tiles_);
}

Result<bool> HostExecution::poll() {
  progressed_ = false;
  bool done = true;
  for (ThreadBlockRun& block : call_.blocks) {
    if (block.done(call_)) continue;
    UNISONO_ASSIGN(const bool moved, block.advance(call_));
    progressed_ |= moved;
    done &= block.done(call_);
  }
  if (done) {
    UNISONO_ASSIGN(done, finish());
  }
  if (!done && !progressed_) UNISONO_TRY(call_.resources->progress());
  return done;
}

Result<bool> HostExecution::finish() {
  for (ThreadBlockRun& block : call_.blocks) {
    UNISONO_ASSIGN(const bool finished, block.finished(call_));
    if (!finished) return false;
  }
  if (is_reduction(header_.collective) && arguments_.operation == ReduceOperation::average) {
    const bool holds_result =
        header_.collective != Collective::reduce || program_.rank == header_.root;
    const int blocks = holds_result ? plan::output_blocks_of(header_, program_.rank) : 0;
    call_.arithmetic.divide(static_cast<std::byte*>(arguments_.output),
                            static_cast<std::size_t>(blocks) *
                                static_cast<std::size_t>(arguments_.count) *
                                size_bytes(arguments_.type),
                            header_.ranks);
  }
  running_ = false;
  return true;
}

std::size_t HostExecution::memory_bytes() const {
  std::size_t bytes = sizeof *this + call_.arithmetic.memory_bytes();
  for (const plan::ThreadBlock& block : program_.thread_blocks)
    bytes += sizeof(ThreadBlockRun) + sizeof block + plan::memory_bytes(block.body);
  for (const ThreadBlockRun& block : call_.blocks) bytes += block.placed().memory_bytes();
  return bytes;
}

Waiting HostExecution::waiting() const {
  const ThreadBlockRun* least = nullptr;
  const auto behind = [](const Waiting& a, const Waiting& b) {
    return a.tile != b.tile ? a.tile < b.tile : a.step < b.step;
  };
  for (const ThreadBlockRun& block : call_.blocks) {
    const bool waits_outside = block.waiting().kind != Waiting::Kind::nothing &&
                               block.waiting().kind != Waiting::Kind::dependency;
    if (!waits_outside) continue;
    if (least == nullptr || behind(block.waiting(), least->waiting())) least = &block;
  }
  return least == nullptr ? Waiting{} : least->waiting();
}

}  // namespace unisono::engine
