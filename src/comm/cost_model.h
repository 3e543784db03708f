// What a message costs on each kind of link: the numbers behind the default selection.
#pragma once

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
  // Of what a rank inside a node takes and does not pass on in the same step: it reads that again.
  double again_ns_per_byte;
  // Where ranks share a core, a message waits until its receiver has the core.
  double turn_us;

  // `crowding`: ranks for each core, 1 or more.
  double time_us(const algorithm::Cost& cost, Protocol protocol, bool passes_on,
                 double crowding) const;
};

// Of the host engine. The numbers are measured by bench/transport_bench and bench/reduce_bench on 2
// cores at 2 ranks; they need only be right in proportion.
const CostModel& host_cost_model();

}  // namespace unisono::comm
