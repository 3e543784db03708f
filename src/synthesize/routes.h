// The ways from rank to rank of a link graph: over one link, or through switches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulate/time.h"
#include "synthesize/link_graph.h"

namespace unisono::synthesize {

using simulate::Time;

struct Route {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int32_t first_link = 0;  // in Routes::link_numbers
  std::int32_t links = 0;
  Time duration = 0;  // of one chunk, from its start to its arrival
};

// Every link between two ranks is a way; in addition, two ranks that are joined through switches
// have one way through them: the shortest for a chunk, and among equals the first found.
struct Routes {
  std::vector<Route> routes;
  std::vector<std::int32_t> link_numbers;
  std::vector<Time> hold;  // by link: how long a chunk holds a lane

  std::span<const std::int32_t> links_of(const Route& route) const {
    return {link_numbers.data() + route.first_link, static_cast<std::size_t>(route.links)};
  }
};

Routes find_rank_routes(const LinkGraph& graph, std::int64_t chunk_bytes);

// By rank * ranks + rank: how long a chunk takes at least from one to the other, passed on by ranks
// where that is shorter.
std::vector<float> distances(const Routes& routes, int ranks);

}  // namespace unisono::synthesize
