// Machines and calls that the tests of the simulator share.
#pragma once

#include <string_view>

#include "simulate/collective.h"

namespace unisono::simulate::test {

// A cluster of which no two costs are equal, so that a mistaken one shows; racks of two nodes.
Machine cluster(int nodes, int ranks_per_node, int nics);

const algorithm::Entry& entry(Collective collective, std::string_view name);

CollectiveCall call_of(Collective collective, topo::Placement placement, std::int64_t count);

}  // namespace unisono::simulate::test
