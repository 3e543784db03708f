// libfabric's transport over the provider of tests/fabric: what real cards ask for and get wrong.
#pragma once

#include <array>
#include <vector>

#include "conformance/harness.h"
#include "support/demanding_provider.h"
#include "transport/ofi/transport.h"

namespace unisono::test {

struct DemandingFactory {
  const char* name;
  const char* demands;
  bool when_sanitized = false;  // rows that together reach all code: sanitizers need no others
};

// Each demand is in some row, and most are in ofi_worst together.
inline constexpr std::array demanding_factories{
    DemandingFactory{"ofi_small", "messages=8192+writes=65536+keys=4", true},
    DemandingFactory{"ofi_endpoint", "endpoint+queue=1024", true},
    DemandingFactory{"ofi_virtual", "virtual+local+full"},
    DemandingFactory{"ofi_unordered", "unordered+anonymous"},
    DemandingFactory{"ofi_late", "late+keys=2"},
    DemandingFactory{"ofi_worst", "unordered+late+busy+full+local+endpoint+keys=2+anonymous", true},
    // Completion data come by fi_writedata alone, or not at all, so that a ring tells of writes.
    DemandingFactory{"ofi_writedata", "no_message_data", true},
    DemandingFactory{"ofi_refused_data", "refused_data+local"},
    DemandingFactory{"ofi_late_ring", "late+busy+no_data", true},
};

// None where there is no libfabric, or where the provider was not built. A row that cannot be
// opened fails its tests; it is not left out.
inline std::vector<Factory> over_demanding_providers() {
  std::vector<Factory> out;
  if (!find_demanding_provider() ||
      !transport::ofi::make_transport(Job::options("probe"), "tcp;ofi_rxm").ok())
    return out;
  for (const DemandingFactory& row : demanding_factories) {
#ifdef UNISONO_SANITIZED
    if (!row.when_sanitized) continue;
#endif
    const auto make = [provider = demanding(row.demands)](const TransportOptions& with) {
      return transport::ofi::make_transport(with, provider);
    };
    out.push_back({.name = row.name, .make = make, .across_processes = true});
  }
  return out;
}

}  // namespace unisono::test
