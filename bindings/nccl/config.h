// ncclConfig_t as callers of any version give it.
#pragma once

#include "errors.h"

namespace unisono::nccl {

// What of a configuration has a meaning here. The others (thread blocks of a cluster, networks,
// sharing with a parent, ...) are checked and accepted.
struct Config {
  bool is_blocking = true;
  int max_sms = 0;               // maxCTAs; 0: none is named
  bool prefers_zero_sm = false;  // CTAPolicy is NCCL_CTA_POLICY_ZERO
};

// `given` may be null: `out` stays as it is.
ncclResult_t read_config(const ncclConfig_t* given, Config& out);

}  // namespace unisono::nccl
