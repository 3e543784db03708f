// What PAT costs over all ranks.
#pragma once

#include "algorithm/algorithm.h"
#include "algorithm/parts/pat.h"

namespace unisono::algorithm {

// The longest chain of messages, which follows from the order of hops and, where scratch is used
// again, from who must have sent what stood there: at most ceil(log2 p) where it is not.
std::int64_t pat_all_gather_steps(const PatTrees& trees);
std::int64_t pat_reduce_scatter_steps(const PatTrees& trees);

Cost pat_all_gather_cost(const Request& request, int aggregation, double block_bytes);
Cost pat_reduce_scatter_cost(const Request& request, int aggregation, double block_bytes);

}  // namespace unisono::algorithm
