#include "synthesize/link_graph.h"

#include "base/error.h"
#include "base/try.h"

namespace unisono::synthesize {
namespace {

std::vector<bool> reached_from_0(const LinkGraph& graph, bool backwards) {
  std::vector<std::vector<int>> next(static_cast<std::size_t>(graph.points()));
  for (const Link& link : graph.links) {
    const int from = backwards ? link.to : link.from;
    next[static_cast<std::size_t>(from)].push_back(backwards ? link.from : link.to);
  }
  std::vector<bool> reached(next.size());
  reached[0] = true;
  std::vector<int> open{0};
  while (!open.empty()) {
    const int point = open.back();
    open.pop_back();
    for (const int other : next[static_cast<std::size_t>(point)]) {
      if (reached[static_cast<std::size_t>(other)]) continue;
      reached[static_cast<std::size_t>(other)] = true;
      open.push_back(other);
    }
  }
  return reached;
}

Status check_link(const LinkGraph& graph, std::size_t number) {
  const Link& link = graph.links[number];
  const auto refuse = [&](const auto&... why) {
    return misuse("links of ", graph.name, ": link ", number, ", from ", link.from, " to ", link.to,
                  ", ", why...);
  };
  for (const int end : {link.from, link.to})
    if (end < 0 || end >= graph.points())
      return refuse("ends at ", end, "; there are ", graph.ranks, " ranks and ", graph.switches,
                    " switches, 0 to ", graph.points() - 1);
  if (link.from == link.to) return refuse("connects a point with itself");
  if (!(link.latency_ns >= 0) || link.latency_ns > simulate::max_duration_ns)
    return refuse("has a latency of ", link.latency_ns, " ns; it must be 0 to 100000 s");
  if (!(link.gb_s >= 1e-6) || link.gb_s > 1e9)
    return refuse("has a bandwidth of ", link.gb_s, " GB/s; it must be 1e-6 to 1e9");
  if (link.lanes < 1 || link.lanes > max_lanes)
    return refuse("has ", link.lanes, " lanes; it must have 1 to ", max_lanes);
  return {};
}

}  // namespace

Status check(const LinkGraph& graph) {
  if (graph.ranks < 1 || graph.switches < 0 || graph.ranks > max_points ||
      graph.switches > max_points - graph.ranks)
    return misuse("links of ", graph.name, ": ", graph.ranks, " ranks and ", graph.switches,
                  " switches; there must be at least 1 rank, and at most ", max_points,
                  " ranks and switches");
  if (graph.links.size() > max_links)
    return misuse("links of ", graph.name, ": ", graph.links.size(), " links; at most ", max_links);
  for (std::size_t i = 0; i < graph.links.size(); ++i) UNISONO_TRY(check_link(graph, i));
  for (const bool backwards : {false, true}) {
    const std::vector<bool> reached = reached_from_0(graph, backwards);
    for (int rank = 0; rank < graph.ranks; ++rank)
      if (!reached[static_cast<std::size_t>(rank)])
        return misuse("links of ", graph.name, ": no path leads from rank ", backwards ? rank : 0,
                      " to rank ", backwards ? 0 : rank,
                      "; every rank must be able to reach every other rank");
  }
  return {};
}

LinkGraph reversed(const LinkGraph& graph) {
  LinkGraph out = graph;
  for (Link& link : out.links) std::swap(link.from, link.to);
  return out;
}

}  // namespace unisono::synthesize
