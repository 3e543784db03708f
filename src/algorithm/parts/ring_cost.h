// The placement's share in the costs of the ring algorithms: which edges cross nodes.
#pragma once

#include "algorithm/algorithm.h"

namespace unisono::algorithm {

// Every chunk travels `hops` successive edges of its ring; each rank sends `bytes_sent` in all,
// divided evenly over request.channels rings in each of 1 or 2 `directions`.
Cost ring_cost(const Request& request, int directions, std::int64_t hops, double bytes_sent,
               double bytes_reduced);

// Every chunk travels the ring of its channel but for the edge into the root, or out of it.
enum class ChainEnd { before_root, at_root };
Cost chain_cost(const Request& request, ChainEnd end, double bytes_sent, double bytes_reduced);

}  // namespace unisono::algorithm
