// Configurations as callers of any version give them: ncclConfig_t of a communicator, and
// ncclCollConfig_t of one call.
#pragma once

#include <unisono/communicator.h>

#include "errors.h"

namespace unisono::nccl {

// What of a configuration has a meaning here. The others (thread blocks of a cluster, networks,
// sharing with a parent, ...) are checked and accepted.
struct Config {
  bool is_blocking = true;
  CallOptions options;  // of all calls: maxCTAs limits the SMs, CTAPolicy may name zero_sm
  int contexts = 1;     // numRmaCtx
  int signals = 1;      // numRmaSig, of each context
};

// `given` may be null: `out` stays as it is.
ncclResult_t read_config(const ncclConfig_t* given, Config& out);

// The options of one call.
struct CallConfig {
  CallOptions options;          // the limit on SMs, policy, algorithm, protocol, tag
  bool forces_choice = true;    // else another plan serves where the one that is named does not
  cudaEvent_t event = nullptr;  // to be recorded on the stream before the call
};
// Fills in from the communicator what the call's options leave open; the lower limit on SMs holds.
void apply(const Config& config, CallOptions& options);
ncclResult_t read_call_config(const char* function, const ncclCollConfig_t& given, CallConfig& out);

}  // namespace unisono::nccl
