// Ranks compare their terms when they join: these must be the same on all ranks of a job.
#pragma once

#include <unisono/call_options.h>
#include <unisono/result.h>
#include <unisono/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/fifo.h"

namespace unisono::comm {

// The options among these are those that decide where messages lie.
struct Terms {
  transport::FifoOptions fifo_options;
  bool checks_calls = false;
  bool has_device = false;
  bool has_signals = false;
  std::uint64_t selection_file = 0;  // hash of its text; 0: none
  std::uint64_t forced_plans = 0;    // hash of the settings that force plans
  // These decide which plan runs, too.
  bool is_flat = false;
  CallOptions calls = {};  // the policy, the limit on SMs, whether computation overlaps
};
std::vector<std::byte> write_terms(const Terms& terms);
// Says how the terms of two ranks differ.
Error explain_terms(int rank, std::span<const std::byte> common, int other,
                    std::span<const std::byte> its_common);

}  // namespace unisono::comm
