// Where this rank's node is: what UNISONO_LEVELS says, or else the launcher.
#pragma once

#include <unisono/result.h>

#include <string>
#include <string_view>

#include "base/settings.h"
#include "topo/levels.h"

namespace unisono::comm {

struct OwnLocation {
  topo::Location location;  // empty: not known
  bool is_launchers = false;
};

// UNISONO_LEVELS alone; "none" is an empty one. Misuse that quotes what cannot be read.
Result<topo::Location> location_from_settings(const Settings& settings);
// The same, and where it is not set what Slurm says of this host.
Result<OwnLocation> own_location(const Settings& settings);

// From SLURM_TOPOLOGY_ADDR and SLURM_TOPOLOGY_ADDR_PATTERN, "core.leaf3.node12" and
// "switch.switch.node": the farthest component first, and the node itself last. Levels have the
// pattern's names, numbered from the nearest one where they are the same: switch1, switch2.
// Misuse where the two do not fit, or the node is another one than `host`: the variables were
// passed on from there.
Result<topo::Location> location_from_slurm(std::string_view address, std::string_view pattern,
                                           std::string_view host);

}  // namespace unisono::comm
