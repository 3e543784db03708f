// What a message costs on each kind of link: the numbers behind the default selection.
#pragma once

#include <array>

#include "algorithm/algorithm.h"

namespace unisono::comm {

// t = alpha for each message on the longest chain + overhead for each further message of the
// busiest rank + bytes * beta of the busiest rank.
struct LinkCost {
  double alpha_us;
  double overhead_us;
  double beta_ns_per_byte;
};

struct CostModel {
  // By protocol: inside a node (shared memory) and between nodes (sockets).
  LinkCost intra_node[protocol_count];
  LinkCost inter_node[protocol_count];
  double reduce_ns_per_byte;
  // For data that a rank receives inside a node and forwards in a later step: it reads them again.
  double again_ns_per_byte;
  // For data that are reordered to make up messages, or after receiving them.
  double copy_ns_per_byte;
  // Where ranks share a core, a message waits until its receiver has the core.
  double turn_us;
  // For each message that the ranks of a node send to other nodes, because they share its network:
  // three or six ranks that exchange with another node at once take half as long again as one.
  double shared_us;

  // `oversubscription`: ranks for each core, 1 or more.
  double time_us(const algorithm::Cost& cost, Protocol protocol, int nodes, bool passes_on,
                 double oversubscription) const;
};

// A model's parameters, in the order of its fields. The time is linear in them.
using Parameters = std::array<double, sizeof(CostModel) / sizeof(double)>;
Parameters parameters_of(const CostModel& model);
CostModel cost_model_of(const Parameters& parameters);

// The host engine's costs. The numbers were searched for at random, and some adjusted, so that most
// choices are right on grids (studies/selection/grid.py) measured with a core for each rank, on 32
// cores at 3 to 16 ranks and on 2 cores at 2; they need only be right in proportion. Between nodes
// all protocols send the same, and Simple wins; there a byte costs more than over the loopback of
// those machines (0.45 ns), so that networks slower than it get plans that send little.
const CostModel& host_cost_model();

}  // namespace unisono::comm
