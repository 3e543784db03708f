#include "synthesize/schedule.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/error.h"
#include "base/try.h"
#include "synthesize/match.h"
#include "synthesize/routes.h"

namespace unisono::synthesize {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

constexpr double rounding = 1e-6;  // of distances, which are floats

bool is_served(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter ||
         collective == Collective::all_reduce;
}

Status check(const LinkGraph& graph, const Goal& goal) {
  UNISONO_TRY(check(graph));
  if (!is_served(goal.collective))
    return misuse("plans for ", name(goal.collective),
                  " are not synthesized; all_gather, reduce_scatter and all_reduce are");
  if (goal.chunks < 1 || goal.chunk_bytes < 1 || goal.tries < 1 || goal.tries > max_tries)
    return misuse("chunks, chunk_bytes and tries are ", goal.chunks, ", ", goal.chunk_bytes,
                  " and ", goal.tries, "; they must be 1 or more, and tries at most ", max_tries);
  const int phases = goal.collective == Collective::all_reduce ? 2 : 1;
  const std::int64_t moves = std::int64_t{graph.ranks} * (graph.ranks - 1) * phases;
  if (moves > max_transfers / goal.chunks)
    return misuse(name(goal.collective), " on ", graph.ranks, " ranks with ", goal.chunks,
                  " chunks each needs more than ", max_transfers, " transfers; use fewer chunks");
  return {};
}

// Every rank gets the others' chunks over its links, and the farthest chunk takes its way.
Time bound_of(const LinkGraph& graph, const Routes& routes, const std::vector<float>& between,
              int chunks) {
  const std::size_t ranks = at(graph.ranks);
  std::vector<double> rate(ranks);
  std::vector<double> latency_ps(ranks, simulate::max_duration_ns * 1e3);
  for (std::size_t i = 0; i < graph.links.size(); ++i) {
    const Link& link = graph.links[i];
    if (link.to >= graph.ranks) continue;
    rate[at(link.to)] += link.lanes / static_cast<double>(routes.hold[i]);
    latency_ps[at(link.to)] = std::min(latency_ps[at(link.to)], link.latency_ns * 1e3);
  }
  double most = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (ranks > 1)
      most =
          std::max(most, static_cast<double>(chunks) * static_cast<double>(ranks - 1) / rate[rank] +
                             latency_ps[rank]);
    for (std::size_t to = 0; to < ranks; ++to)
      most = std::max(most, static_cast<double>(between[rank * ranks + to]) * (1 - rounding));
  }
  return static_cast<Time>(most);
}

Schedule gather(const LinkGraph& graph, const Goal& goal) {
  Schedule best;
  best.ranks = graph.ranks;
  best.chunks = goal.chunks;
  const Routes routes = find_rank_routes(graph, goal.chunk_bytes);
  const std::vector<float> between = distances(routes, graph.ranks);
  best.bound = bound_of(graph, routes, between, goal.chunks);
  for (int i = 0; i < goal.tries; ++i) {
    std::vector<Transfer> found = match_all_gather(
        graph, routes, between, goal.chunks, goal.seed * max_tries + static_cast<std::uint64_t>(i));
    Time end = 0;
    for (const Transfer& one : found) end = std::max(end, one.end);
    if (i == 0 || end < best.duration) {
      best.duration = end;
      best.transfers = std::move(found);
    }
    if (static_cast<double>(best.duration) <= static_cast<double>(best.bound) * (1 + rounding))
      break;
  }
  return best;
}

// Who passed a chunk on now gets the sum of it, at the same distance from the other end.
void turn_round(Schedule& schedule) {
  for (Transfer& one : schedule.transfers) {
    std::swap(one.from, one.to);
    const Time start = schedule.duration - one.end;
    one.end = schedule.duration - one.start;
    one.start = start;
    one.reduces = true;
  }
  std::ranges::sort(schedule.transfers, {}, [](const Transfer& one) {
    return std::tuple(one.start, one.chunk, one.from, one.to);
  });
}

}  // namespace

Result<Schedule> synthesize(const LinkGraph& graph, const Goal& goal) {
  UNISONO_TRY(check(graph, goal));
  Schedule out;
  if (goal.collective == Collective::all_gather) {
    out = gather(graph, goal);
  } else {
    out = gather(reversed(graph), goal);
    turn_round(out);
  }
  if (goal.collective == Collective::all_reduce) {
    Schedule second = gather(graph, goal);
    for (Transfer& one : second.transfers) {
      one.start += out.duration;
      one.end += out.duration;
    }
    std::ranges::move(second.transfers, std::back_inserter(out.transfers));
    out.duration += second.duration;
    out.bound += second.bound;
  }
  out.collective = goal.collective;
  return out;
}

}  // namespace unisono::synthesize
