#include "plan/foreign.h"

#include <algorithm>

#include "base/error.h"
#include "base/str.h"

namespace unisono::plan {
namespace {

constexpr std::uint32_t bits(std::initializer_list<Operation> operations) {
  std::uint32_t out = 0;
  for (const Operation operation : operations) out |= 1U << static_cast<unsigned>(operation);
  return out;
}

// What the step types of MSCCL's XML are, copy_send as cpy and s.
constexpr std::uint32_t two_sided =
    bits({Operation::send, Operation::recv, Operation::copy, Operation::reduce,
          Operation::copy_send, Operation::recv_copy_send, Operation::recv_reduce_copy,
          Operation::recv_reduce_send, Operation::recv_reduce_copy_send});

// MAXCHANNELS of NCCL 2.12 to 2.20 and RCCL, and the element counts of one transmission.
constexpr int msccl_channels = 32;
constexpr int msccl_count = 71;
constexpr int msccl_fused_reductions = 16;
// It keeps 4096 XML elements, the last of which it needs to see the end.
constexpr int msccl_nodes = 4095;
constexpr int msccl_ranks = 1024;
// A signed byte has the thread block that is waited for, two bytes the chunk.
constexpr int msccl_last_awaited = 127;
constexpr int msccl_last_chunk = 32767;

ForeignExecutor msccl_xml(std::string_view name, std::string_view summary, int steps, int blocks) {
  ForeignExecutor out{
      .name = name, .format = "msccl-xml", .summary = summary, .limits = {}, .collectives = {}};
  out.limits.executor = name;
  out.limits.max_steps = steps;
  out.limits.max_thread_blocks = blocks;
  out.limits.max_channels = msccl_channels;
  out.limits.max_step_count = msccl_count;
  out.limits.operations = two_sided;
  out.max_blocks_per_channel = 32;
  out.last_awaited_block = std::min(blocks - 1, msccl_last_awaited);
  out.max_fused_reductions = msccl_fused_reductions;
  out.max_nodes = msccl_nodes;
  out.max_ranks = msccl_ranks;
  out.last_chunk = msccl_last_chunk;
  return out;
}

std::vector<ForeignExecutor> make_executors() {
  // Thread blocks: 2 on each of an A100's 108 SMs.
  ForeignExecutor msccl =
      msccl_xml("msccl", "microsoft/msccl, NCCL with an interpreter", 256, 2 * 108);
  msccl.collectives = {"allreduce", "allgather", "reduce_scatter", "alltoall",
                       "broadcast", "reduce",    "custom"};
  msccl.default_max_bytes = std::int64_t{128} << 20;
  msccl.custom_blocks_equal = true;
  ForeignExecutor azure = msccl_xml("executor-nccl", "Azure/msccl-executor-nccl", 64, 32 * 32);
  azure.collectives = {"allreduce", "allgather", "reducescatter", "alltoall",
                       "broadcast", "reduce",    "gather",        "scatter"};
  ForeignExecutor rccl = azure;
  rccl.name = "rccl";
  rccl.limits.executor = "rccl";
  rccl.limits.max_thread_blocks = 64;
  rccl.last_awaited_block = rccl.limits.max_thread_blocks - 1;
  rccl.summary = "ROCm's RCCL; it loads every file in MSCCL_ALGO_DIR";

  ForeignExecutor mscclpp{.name = "mscclpp",
                          .format = "mscclpp-json",
                          .summary = "microsoft/mscclpp, execution plans of version 0.9",
                          .limits = {},
                          .collectives = {"allreduce", "allgather", "reducescatter", "alltoall",
                                          "broadcast", "reduce", "gather", "scatter", "custom"}};
  mscclpp.limits.executor = "mscclpp";
  mscclpp.limits.max_steps = 64;
  mscclpp.limits.operations =
      bits({Operation::copy, Operation::reduce, Operation::put, Operation::signal, Operation::wait,
            Operation::read_reduce, Operation::barrier});
  mscclpp.max_blocks_per_channel = mscclpp.limits.max_thread_blocks;
  mscclpp.last_awaited_block = mscclpp.limits.max_thread_blocks;
  mscclpp.max_semaphores = 16;
  return {msccl, azure, rccl, mscclpp};
}

}  // namespace

std::span<const ForeignExecutor> foreign_executors() {
  static const std::vector<ForeignExecutor> all = make_executors();
  return all;
}

Result<const ForeignExecutor*> find_foreign_executor(std::string_view name) {
  std::vector<std::string> known;
  for (const ForeignExecutor& it : foreign_executors()) {
    if (it.name == name) return &it;
    known.emplace_back(it.name);
  }
  return misuse("there is no target '", name, "'", name_hint(name, known));
}

std::int64_t steps_in_file(const ForeignExecutor& executor, Operation operation,
                           std::size_t waits) {
  const auto extra = static_cast<std::int64_t>(waits);
  if (executor.format != "msccl-xml") return 1 + extra;
  return (operation == Operation::copy_send ? 2 : 1) + (extra > 1 ? extra - 1 : 0);
}

}  // namespace unisono::plan
