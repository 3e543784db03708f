#include "graphs.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "base/str.h"
#include "synthesize/routes.h"

namespace unisono::synthesize::test {
namespace {

void both(LinkGraph& graph, int a, int b, double latency_ns, double gb_s, int lanes = 1) {
  graph.links.push_back({a, b, latency_ns, gb_s, lanes});
  graph.links.push_back({b, a, latency_ns, gb_s, lanes});
}

// What a rank holds of a chunk: whose contributions, as a set.
using Holding = std::set<int>;

class Follower {
 public:
  Follower(const Schedule& schedule, const LinkGraph& graph, std::int64_t chunk_bytes)
      : schedule_(schedule),
        graph_(graph),
        routes_(find_rank_routes(graph, chunk_bytes)),
        routes_back_(find_rank_routes(reversed(graph), chunk_bytes)) {}

  std::string run() {
    fill();
    // By when they happen: a chunk that comes at a moment can be sent at it.
    struct Moment {
      Time time;
      bool starts;
      std::size_t transfer;
    };
    std::vector<Moment> moments;
    for (std::size_t i = 0; i < schedule_.transfers.size(); ++i) {
      moments.push_back({schedule_.transfers[i].start, true, i});
      moments.push_back({schedule_.transfers[i].end, false, i});
    }
    std::ranges::sort(moments, {}, [](const Moment& one) {
      return std::tuple(one.time, one.starts, one.transfer);
    });
    std::vector<Holding> on_the_way(schedule_.transfers.size());
    for (const Moment& moment : moments) {
      const Transfer& one = schedule_.transfers[moment.transfer];
      if (moment.starts) {
        on_the_way[moment.transfer] = holds(one.from, one.chunk);
        if (on_the_way[moment.transfer].empty())
          return str("rank ", one.from, " sends chunk ", one.chunk, " without having it");
      } else if (std::string fault = arrive(one, on_the_way[moment.transfer]); !fault.empty()) {
        return fault;
      }
    }
    if (std::string fault = lanes(); !fault.empty()) return fault;
    return results();
  }

 private:
  Holding& holds(int rank, int chunk) { return holds_[{rank, chunk}]; }
  int total() const { return schedule_.ranks * schedule_.chunks; }
  bool gathers() const { return schedule_.collective == Collective::all_gather; }

  void fill() {
    for (int rank = 0; rank < schedule_.ranks; ++rank)
      for (int chunk = 0; chunk < total(); ++chunk)
        if (!gathers() || chunk / schedule_.chunks == rank) holds(rank, chunk) = {rank};
  }

  std::string arrive(const Transfer& one, const Holding& what) {
    Holding& there = holds(one.to, one.chunk);
    const auto name = str("chunk ", one.chunk, " to rank ", one.to);
    if (!one.reduces) {
      if (gathers() && !there.empty()) return str(name, " comes twice");
      there = what;
      return "";
    }
    for (const int rank : what)
      if (!there.insert(rank).second) return str(name, " brings rank ", rank, "'s part twice");
    return "";
  }

  // How many transfers hold a link at once; in a reduction they hold it at the other end of their
  // time, as the all-gather that they were did.
  std::string lanes() const {
    std::map<int, std::map<Time, int>> changes;
    for (const Transfer& one : schedule_.transfers) {
      bool found = false;
      const Routes& routes = one.reduces ? routes_back_ : routes_;
      for (const Route& route : routes.routes) {
        const int from = one.reduces ? route.to : route.from;
        const int to = one.reduces ? route.from : route.to;
        if (from != one.from || to != one.to || route.duration != one.end - one.start) continue;
        if (is_ambiguous(routes, route)) return "";  // cannot be told from its times
        found = true;
        for (const std::int32_t link : routes.links_of(route)) {
          const Time hold = routes.hold[static_cast<std::size_t>(link)];
          const Time begin = one.reduces ? one.end - hold : one.start;
          ++changes[link][begin];
          --changes[link][begin + hold];
        }
        break;
      }
      if (!found) return str("no route from ", one.from, " to ", one.to, " takes so long");
    }
    for (const auto& [link, times] : changes) {
      int held = 0;
      for (const auto& [time, change] : times) {
        held += change;
        if (held > graph_.links[static_cast<std::size_t>(link)].lanes)
          return str("link ", link, " carries ", held, " chunks at ", time);
      }
    }
    return "";
  }

  static bool is_ambiguous(const Routes& routes, const Route& route) {
    return std::ranges::count_if(routes.routes, [&](const Route& other) {
             return other.from == route.from && other.to == route.to &&
                    other.duration == route.duration;
           }) > 1;
  }

  std::string results() {
    Holding everybody;
    for (int rank = 0; rank < schedule_.ranks; ++rank) everybody.insert(rank);
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      for (int chunk = 0; chunk < total(); ++chunk) {
        const int owner = chunk / schedule_.chunks;
        if (schedule_.collective == Collective::reduce_scatter && owner != rank) continue;
        if (holds(rank, chunk) != (gathers() ? Holding{owner} : everybody))
          return str("rank ", rank, " ends without chunk ", chunk);
      }
    }
    return "";
  }

  const Schedule& schedule_;
  const LinkGraph& graph_;
  Routes routes_;
  Routes routes_back_;  // of the links reversed, which a reduction is found on
  std::map<std::pair<int, int>, Holding> holds_;
};

}  // namespace

LinkGraph grid(int rows, int columns, double latency_ns, bool wraps) {
  LinkGraph graph{str("grid_", rows, "x", columns), rows * columns, 0, {}};
  for (int y = 0; y < rows; ++y) {
    for (int x = 0; x < columns; ++x) {
      const int rank = y * columns + x;
      if (x + 1 < columns) both(graph, rank, rank + 1, latency_ns, 25);
      if (y + 1 < rows) both(graph, rank, rank + columns, latency_ns, 25);
      if (wraps && x == 0 && columns > 2) both(graph, rank, rank + columns - 1, latency_ns, 25);
      if (wraps && y == 0 && rows > 2) both(graph, rank, x + (rows - 1) * columns, latency_ns, 25);
    }
  }
  return graph;
}

LinkGraph star(int ranks, double gb_s) {
  LinkGraph graph{"star", ranks, 1, {}};
  for (int rank = 0; rank < ranks; ++rank) both(graph, rank, ranks, 300, gb_s);
  return graph;
}

LinkGraph dgx_1() {
  LinkGraph graph{"dgx_1", 8, 0, {}};
  const std::vector<int> twice{0, 1, 4, 5, 6, 7, 2, 3};
  const std::vector<int> once{0, 2, 1, 3, 6, 4, 7, 5};
  for (const auto& [ring, lanes] : {std::pair{twice, 2}, std::pair{once, 1}})
    for (std::size_t i = 0; i < 8; ++i) both(graph, ring[i], ring[(i + 1) % 8], 700, 25, lanes);
  return graph;
}

LinkGraph random_graph(std::mt19937& random) {
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  LinkGraph graph{"random", 2 + below(8), below(3), {}};
  const auto add = [&](int from, int to) {
    if (from != to)
      graph.links.push_back({from, to, 100.0 * below(20), 1.0 + below(50), 1 + below(3)});
  };
  // A ring through all points reaches everybody.
  for (int i = 0; i < graph.points(); ++i) add(i, (i + 1) % graph.points());
  for (int i = below(3 * graph.points()); i > 0; --i)
    add(below(graph.points()), below(graph.points()));
  return graph;
}

std::string fault_of(const Schedule& schedule, const LinkGraph& graph, std::int64_t chunk_bytes) {
  return Follower(schedule, graph, chunk_bytes).run();
}

}  // namespace unisono::synthesize::test
