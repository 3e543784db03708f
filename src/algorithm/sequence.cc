#include "algorithm/sequence.h"

#include <algorithm>

namespace unisono::algorithm {
namespace {

// The chunks of one step: where it has only one, both are the same.
struct Point {
  std::int64_t a = 0;
  std::int64_t b = 0;
  bool operator==(const Point&) const = default;
};

struct Progression {
  Point first;
  Point stride;
  std::int64_t count = 0;
  bool has_shape_of(const Progression& other) const {
    return stride == other.stride && count == other.count;
  }
};

std::int64_t difference(std::int64_t x, std::int64_t y, std::int64_t modulus) {
  return x >= y ? x - y : x - y + modulus;
}
Point difference(Point x, Point y, std::int64_t modulus) {
  return {difference(x.a, y.a, modulus), difference(x.b, y.b, modulus)};
}

std::vector<Progression> progressions_of(const std::vector<Point>& points, std::int64_t modulus) {
  std::vector<Progression> result;
  for (std::size_t i = 0; i < points.size(); ++i) {
    Progression one{points[i], {}, 1};
    if (i + 1 < points.size()) one.stride = difference(points[i + 1], points[i], modulus);
    while (i + 1 < points.size() && difference(points[i + 1], points[i], modulus) == one.stride) {
      ++one.count;
      ++i;
    }
    if (one.count == 1) one.stride = {};
    result.push_back(one);
  }
  return result;
}

// From some place on, `period` progressions come `times` times, shifted by `shift` each time.
struct Repetition {
  std::size_t period = 1;
  std::int64_t times = 1;
  Point shift;
  std::size_t covered() const { return period * static_cast<std::size_t>(times); }
};

Repetition repetition_at(const std::vector<Progression>& all, std::size_t at, std::size_t period,
                         std::int64_t modulus) {
  Repetition result{period, 1, {}};
  if (at + 2 * period > all.size()) return result;
  result.shift = difference(all[at + period].first, all[at].first, modulus);
  std::size_t i = at + period;
  while (i < all.size() && all[i].has_shape_of(all[i - period]) &&
         difference(all[i].first, all[i - period].first, modulus) == result.shift)
    ++i;
  result.times = static_cast<std::int64_t>((i - at) / period);
  return result;
}

Repetition best_repetition_at(const std::vector<Progression>& all, std::size_t at,
                              std::int64_t modulus) {
  // A node's ranks in a rotated order are two progressions; greedy cuts make them up to four.
  constexpr std::size_t max_period = 4;
  Repetition best;
  for (std::size_t period = 1; period <= max_period; ++period) {
    const Repetition one = repetition_at(all, at, period, modulus);
    if (one.times > 1 && one.covered() > best.covered()) best = one;
  }
  return best;
}

using PointBody = std::function<void(plan::Index, plan::Index)>;

void write_progression(plan::BlockBuilder& block, const Progression& it, const Repetition& around,
                       std::int64_t modulus, const PointBody& body) {
  const std::size_t depth = around.times > 1 ? 1 : 0;
  const auto index = [&](std::int64_t first, std::int64_t shift, std::int64_t stride) {
    plan::Index result(first);
    if (depth > 0) result.coefficient[0] = shift;
    if (it.count > 1) result.coefficient[depth] = stride;
    if (!result.is_constant()) result.modulus = modulus;
    return result;
  };
  if (it.count > 1) block.loop(it.count);
  body(index(it.first.a, around.shift.a, it.stride.a),
       index(it.first.b, around.shift.b, it.stride.b));
  if (it.count > 1) block.end_loop();
}

void for_each_point(plan::BlockBuilder& block, const std::vector<Point>& points,
                    std::int64_t modulus, const PointBody& body) {
  const std::vector<Progression> all = progressions_of(points, modulus);
  for (std::size_t at = 0; at < all.size();) {
    const Repetition best = best_repetition_at(all, at, modulus);
    if (best.times > 1) block.loop(best.times);
    for (std::size_t i = at; i < at + best.period; ++i)
      write_progression(block, all[i], best, modulus, body);
    if (best.times > 1) block.end_loop();
    at += best.covered();
  }
}

std::int64_t chunk_of(const Run& run) { return run.location.index.base; }

bool are_alike(const Move& x, const Move& y) {
  return x.from.location.buffer == y.from.location.buffer &&
         x.to.location.buffer == y.to.location.buffer && x.from.count == y.from.count;
}

}  // namespace

void for_each_chunk(plan::BlockBuilder& block, const std::vector<std::int64_t>& chunks,
                    std::int64_t modulus, const std::function<void(plan::Index)>& body) {
  std::vector<Point> points;
  points.reserve(chunks.size());
  for (std::int64_t chunk : chunks) points.push_back({chunk, chunk});
  for_each_point(block, points, modulus, [&](plan::Index index, plan::Index) { body(index); });
}

void for_each_move(plan::BlockBuilder& block, std::span<const Move> moves,
                   const std::function<void(plan::Location, plan::Location, int count)>& body) {
  // Anything above all chunks: what a progression passes on the way round does not matter.
  std::int64_t modulus = 1;
  for (const Move& move : moves)
    modulus = std::max({modulus, chunk_of(move.from) + 1, chunk_of(move.to) + 1});
  for (std::size_t at = 0; at < moves.size();) {
    const Move& first = moves[at];
    std::vector<Point> points;
    for (; at < moves.size() && are_alike(moves[at], first); ++at)
      points.push_back({chunk_of(moves[at].from), chunk_of(moves[at].to)});
    for_each_point(block, points, modulus, [&](plan::Index from, plan::Index to) {
      body({first.from.location.buffer, from}, {first.to.location.buffer, to}, first.from.count);
    });
  }
}

void for_each_run(plan::BlockBuilder& block, std::span<const Run> runs,
                  const std::function<void(plan::Location, int count)>& body) {
  std::vector<Move> moves;
  moves.reserve(runs.size());
  for (const Run& run : runs) moves.push_back({run, run});
  for_each_move(block, moves,
                [&](plan::Location location, plan::Location, int count) { body(location, count); });
}

}  // namespace unisono::algorithm
