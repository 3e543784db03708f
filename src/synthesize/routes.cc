#include "synthesize/routes.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

namespace unisono::synthesize {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

class Finder {
 public:
  Finder(const LinkGraph& graph, std::int64_t chunk_bytes)
      : graph_(graph),
        bytes_(static_cast<double>(chunk_bytes)),
        links_from_(at(graph.points())),
        points_(at(graph.points())) {
    for (std::size_t i = 0; i < graph.links.size(); ++i) {
      const Link& link = graph.links[i];
      links_from_[at(link.from)].push_back(static_cast<std::int32_t>(i));
      found_.hold.push_back(std::max<Time>(1, simulate::from_ns(bytes_ / link.gb_s)));
    }
  }

  Routes run() {
    for (int rank = 0; rank < graph_.ranks; ++rank) {
      for (const std::int32_t number : links_from_[at(rank)])
        if (graph_.links[at(number)].to < graph_.ranks) add(rank, std::vector{number});
      if (graph_.switches > 0) through_switches(rank);
    }
    return std::move(found_);
  }

 private:
  struct Point {
    double cost = never;
    double latency_ns = 0;
    double slowest_ns = 0;  // a chunk's time on the narrowest link
    std::int32_t by = -1;   // the link that leads here
    bool is_done = false;
  };

  void add(int from, const std::vector<std::int32_t>& links) {
    Route route{from, graph_.links[at(links.back())].to,
                static_cast<std::int32_t>(found_.link_numbers.size()),
                static_cast<std::int32_t>(links.size()), 0};
    Time slowest = 0;
    double latency_ns = 0;
    for (const std::int32_t number : links) {
      found_.link_numbers.push_back(number);
      slowest = std::max(slowest, found_.hold[at(number)]);
      latency_ns += graph_.links[at(number)].latency_ns;
    }
    route.duration = slowest + simulate::from_ns(latency_ns);
    found_.routes.push_back(route);
  }

  // Chunks are cut through: the narrowest link counts once.
  void through_switches(int rank) {
    std::ranges::fill(points_, Point{});
    using Entry = std::pair<double, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    points_[at(rank)].cost = 0;
    open.emplace(0, rank);
    while (!open.empty()) {
      const int here = open.top().second;
      open.pop();
      if (points_[at(here)].is_done) continue;
      points_[at(here)].is_done = true;
      // Ranks end ways.
      if (here != rank && here < graph_.ranks) continue;
      for (const std::int32_t number : links_from_[at(here)]) {
        const Link& link = graph_.links[at(number)];
        if (here == rank && link.to < graph_.ranks) continue;
        Point next;
        next.latency_ns = points_[at(here)].latency_ns + link.latency_ns;
        next.slowest_ns = std::max(points_[at(here)].slowest_ns, bytes_ / link.gb_s);
        next.cost = next.latency_ns + next.slowest_ns;
        next.by = number;
        if (next.cost >= points_[at(link.to)].cost || link.to == rank) continue;
        points_[at(link.to)] = next;
        open.emplace(next.cost, link.to);
      }
    }
    for (int to = 0; to < graph_.ranks; ++to) {
      if (to == rank || points_[at(to)].by < 0) continue;
      std::vector<std::int32_t> links;
      for (int here = to; here != rank; here = graph_.links[at(links.back())].from)
        links.push_back(points_[at(here)].by);
      std::ranges::reverse(links);
      add(rank, links);
    }
  }

  const LinkGraph& graph_;
  double bytes_;
  std::vector<std::vector<std::int32_t>> links_from_;
  std::vector<Point> points_;
  Routes found_;
};

}  // namespace

Routes find_rank_routes(const LinkGraph& graph, std::int64_t chunk_bytes) {
  return Finder(graph, chunk_bytes).run();
}

// Floyd and Warshall's: n^3 steps that vectorise, 0.3 s for 1,024 ranks.
std::vector<float> distances(const Routes& routes, int ranks) {
  const std::size_t n = at(ranks);
  std::vector<float> between(n * n, std::numeric_limits<float>::infinity());
  for (std::size_t rank = 0; rank < n; ++rank) between[rank * n + rank] = 0;
  for (const Route& route : routes.routes) {
    float& known = between[at(route.from) * n + at(route.to)];
    known = std::min(known, static_cast<float>(route.duration));
  }
  for (std::size_t middle = 0; middle < n; ++middle) {
    const float* second = &between[middle * n];
    for (std::size_t from = 0; from < n; ++from) {
      const float first = between[from * n + middle];
      if (first == std::numeric_limits<float>::infinity()) continue;
      float* whole = &between[from * n];
      for (std::size_t to = 0; to < n; ++to)
        whole[to] = second[to] + first < whole[to] ? second[to] + first : whole[to];
    }
  }
  return between;
}

}  // namespace unisono::synthesize
