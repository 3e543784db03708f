// Third-party runtimes that plans can be written for, and what each of them can carry. The formats
// themselves are written and read by python/unisono/exchange.
#pragma once

#include <unisono/result.h>

#include <span>
#include <string_view>
#include <vector>

#include "plan/check.h"

namespace unisono::plan {

struct ForeignExecutor {
  std::string_view name;    // "rccl"
  std::string_view format;  // "msccl-xml" or "mscclpp-json"
  std::string_view summary;
  // max_steps is of the steps as they stand in the file: see steps_in_file().
  Limits limits;
  int max_blocks_per_channel = 0;
  int last_awaited_block = 0;    // the greatest number of a thread block that others wait for
  int max_fused_reductions = 0;  // steps `re` that the loader makes one
  int max_nodes = 0;             // XML elements that it keeps for a rank; 0: no bound
  int max_ranks = 0;             // 0: no bound, also below
  int last_chunk = 0;            // the greatest chunk number that a step names
  // Up to which a file serves that names no size; 0: all.
  std::int64_t default_max_bytes = 0;
  // A custom program has input and output of as many chunks.
  bool custom_blocks_equal = false;
  int max_semaphores = 0;  // pairs of thread blocks of which one waits for the other; 0: any
  std::vector<std::string_view> collectives;  // as the format calls them
};

std::span<const ForeignExecutor> foreign_executors();
// Unknown: misuse that names those that there are.
Result<const ForeignExecutor*> find_foreign_executor(std::string_view name);

// Steps that one of ours becomes in a file of that executor: a step there waits for one other at
// most, so more of them need steps of their own, and copy_send is two.
std::int64_t steps_in_file(const ForeignExecutor& executor, Operation operation, std::size_t waits);

}  // namespace unisono::plan
