// What a plan is found for: ranks and switches, and the directed links between them.
//
// A chunk of s bytes that goes over a link holds one of its lanes for s / bandwidth, and is at the
// other end a latency later. A switch passes chunks through and keeps none.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <string>
#include <vector>

#include "simulate/machine.h"

namespace unisono::synthesize {

struct Link {
  int from = 0;
  int to = 0;
  double latency_ns = 0;  // α
  double gb_s = 1;        // of each lane, 10^9 bytes a second: 1 / β
  int lanes = 1;          // chunks that it carries at a time
};

// Ranks are 0 .. ranks - 1, switches follow.
struct LinkGraph {
  std::string name;
  int ranks = 1;
  int switches = 0;
  std::vector<Link> links;

  int points() const { return ranks + switches; }
};

inline constexpr int max_points = 1 << 16;
inline constexpr int max_lanes = 1 << 16;
inline constexpr std::size_t max_links = std::size_t{1} << 21;

// Misuse that names the link: ends that there are not, a bandwidth of 0, a rank that another one
// cannot reach.
Status check(const LinkGraph& graph);

// Every link the other way round.
LinkGraph reversed(const LinkGraph& graph);

// The links that the simulator's ports, NICs and uplinks stand for, with the costs of Simple.
// `nodes` as in simulate::place.
Result<LinkGraph> link_graph_of(const simulate::Machine& machine, int ranks, int nodes);

}  // namespace unisono::synthesize
