// Connects the programs of all ranks: endpoints and ways.
#pragma once

#include <string>
#include <vector>

#include "simulate/executor.h"
#include "simulate/machine.h"
#include "simulate/programs.h"

namespace unisono::simulate {

// The NIC of its node that a rank uses.
int nic_of(const Machine& machine, const topo::Placement& placement, int rank);

// Ports: one for each rank inside its node, then the NICs of each node.
std::vector<Endpoint> endpoints_of(const Machine& machine, const topo::Placement& placement);

// 0 inside a node, 1 + level between nodes.
int way_between(const Machine& machine, int node, int other_node);
int way_between(const Machine& machine, const topo::Placement& placement, int from, int to);

// Keys by sender, receiver and channel.
std::vector<Wire> wires_of(const Machine& machine, const topo::Placement& placement,
                           const plan::RankProgram& program);

// How time-lines name a rank: "rank 9, node 1", or without the node where there is one only.
std::string shown_name(const topo::Placement& placement, int rank);

}  // namespace unisono::simulate
