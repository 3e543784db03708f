// From a plan to what the kernels read: loops unrolled, operations as what they take and give.
#pragma once

#include <unisono/result.h>

#include <vector>

#include "device/program.h"
#include "engine/gpu/execution.h"
#include "plan/check.h"
#include "plan/plan.h"

namespace unisono::engine::gpu {

// Thread blocks that one launch runs, steps of one and operations that the kernels implement.
plan::Limits limits();

// What a thread block's messages go over.
struct ProgramConnection {
  int peer;
  int channel;
  bool operator==(const ProgramConnection&) const = default;
};
// The index of a connection, which is added if it is new; -1 for no peer.
std::int32_t index_of(int peer, int channel, std::vector<ProgramConnection>& all);

struct LoweredProgram {
  std::vector<device::Block> blocks;  // their links are indices into `connections`
  std::vector<device::Step> steps;
  std::vector<device::Dependency> dependencies;
  std::vector<ProgramConnection> connections;
  bool has_tokens = false;     // signals or waits
  bool has_addresses = false;  // some steps that receive can have their messages put in place
};

// Misuse, naming the limit, for a plan that the engine cannot run.
Result<LoweredProgram> lower(const plan::Header& header, const plan::RankProgram& program);

// The same, and misuse for one that needs larger slots than these, or more thread blocks than the
// device has at once, because they wait for each other.
Result<LoweredProgram> lower_for(const Options& options, int max_blocks, const plan::Header& header,
                                 const plan::RankProgram& program);

}  // namespace unisono::engine::gpu
