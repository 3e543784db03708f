#include "transport/lanes/lanes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace unisono::transport {
namespace {

// Lanes of one rail have nothing to gain from more pieces. So small that two of them share a slot
// of 512 KiB evenly.
constexpr std::size_t one_rail_piece_bytes = std::size_t{256} << 10;

// Over several rails, a put that has at least the least piece for each lane is cut into pieces, of
// which a lane takes the next when it has drained: some for each lane, so that one that drains
// sooner takes more. At 10 Gbit/s the least one lasts 0.1 ms, ten times as long as it costs to send
// and receive it, and the largest 0.8 ms.
constexpr std::size_t least_piece_bytes = std::size_t{128} << 10;
constexpr std::size_t most_piece_bytes = std::size_t{1} << 20;
constexpr std::size_t pieces_a_lane = 2;
// A shorter put, and the end of a longer one, is cut into one part for each lane, all of which
// arrive at once: where each message waits for the one that comes the other way, nothing else fills
// the lanes that have no part. A part is at least so long as to be worth the system calls at both
// ends, some 3 us at 10 Gbit/s.
constexpr std::size_t least_part_bytes = std::size_t{4} << 10;
constexpr std::size_t line_bytes = 64;

// A weight is what a lane carried in about so much of the time in which it was busy. A part of 4
// KiB takes 3 ms at 10 Mbit/s.
constexpr double memory_ns = 50e6;
// As long as less is known of a lane, it counts as if it had carried what the lanes do on average
// for so much of that time: the first bytes after a pause are often faster than all others.
constexpr double prior_ns = 10e6;
// What is known of a lane counts half as much after it was idle for so long: one that has become
// faster is used again.
constexpr double forget_half_ns = 1e9;
// A lane that carries nothing has a weight all the same, this part of the others'.
constexpr double least_part_of_weight = 1e-3;

}  // namespace

double Lanes::weight(std::size_t lane) const {
  if (usual_ <= 0) return 1;
  const Lane& one = lanes_[lane];
  const double unknown_ns = prior_ns * (1 - std::min(one.busy_ns / memory_ns, 1.0));
  const double rate = (one.carried_bytes + usual_ * unknown_ns) / (one.busy_ns + unknown_ns);
  return std::max(rate, usual_ * least_part_of_weight);
}

double Lanes::mean_rate() const {
  double bytes = 0;
  double ns = 0;
  for (const Lane& each : lanes_) {
    bytes += each.carried_bytes;
    ns += each.busy_ns;
  }
  return ns > 0 ? bytes / ns : 0;
}

double Lanes::sum_of_weights() const {
  double sum = 0;
  for (std::size_t lane = 0; lane < count(); ++lane) sum += is_open(lane) ? weight(lane) : 0;
  return sum;
}

std::size_t Lanes::first() const {
  for (std::size_t lane = 0; lane < count(); ++lane)
    if (is_open(lane)) return lane;
  return 0;
}

void Lanes::close(std::size_t lane) {
  if (!is_open(lane)) return;
  lanes_[lane] = {};
  lanes_[lane].has_room = lanes_[lane].is_open = false;
  --open_;
}

void Lanes::reopen(std::size_t lane) {
  if (is_open(lane)) return;
  lanes_[lane] = {};
  ++open_;
}

std::optional<std::size_t> Lanes::soonest(std::size_t bytes) const {
  std::optional<std::size_t> best;
  const auto ns = [&](std::size_t lane) {
    return static_cast<double>(lanes_[lane].outstanding_bytes + bytes) / weight(lane);
  };
  for (std::size_t lane = 0; lane < count(); ++lane)
    if (lanes_[lane].has_room && (!best || ns(lane) < ns(*best))) best = lane;
  return best;
}

void Lanes::look(std::size_t lane, std::uint64_t outstanding_bytes, std::int64_t now_ns) {
  Lane& one = lanes_[lane];
  const std::uint64_t before = one.outstanding_bytes;
  one.outstanding_bytes = outstanding_bytes;
  if (!learns_) return;
  learn(lane, before > outstanding_bytes ? before - outstanding_bytes : 0, before > 0, now_ns);
  one.looked_ns = now_ns;
  usual_ = mean_rate();
}

void Lanes::learn(std::size_t number, std::uint64_t left_bytes, bool was_busy,
                  std::int64_t now_ns) {
  Lane& lane = lanes_[number];
  const double passed_ns = static_cast<double>(now_ns - lane.looked_ns);
  if (passed_ns <= 0) return;
  const auto scale = [&lane](double by) {
    lane.carried_bytes *= by;
    lane.busy_ns *= by;
  };
  if (!was_busy) scale(std::exp2(-passed_ns / forget_half_ns));
  // From the first acknowledgement on: the time until then is the way's length, not its width.
  const bool had_begun = std::exchange(
      lane.has_begun, was_busy && lane.outstanding_bytes > 0 && (lane.has_begun || left_bytes > 0));
  const double bytes = static_cast<double>(left_bytes);
  // Where all has left, it may have done so long ago: the lane is this fast at least.
  const bool is_faster = usual_ <= 0 || bytes > weight(number) * passed_ns;
  if (!(lane.outstanding_bytes > 0 ? had_begun : was_busy && is_faster)) return;
  lane.carried_bytes += bytes;
  lane.busy_ns += passed_ns;
  if (lane.busy_ns > memory_ns) scale(memory_ns / lane.busy_ns);
}

std::optional<Lanes::Piece> Lanes::next(std::size_t put_bytes, std::size_t left,
                                        std::uint64_t backlog) const {
  if (stays_whole(put_bytes)) {
    if (!lanes_[first()].has_room) return std::nullopt;
    return Piece{first(), count() == 1 ? std::min(left, one_rail_piece_bytes) : left};
  }
  if (open_ == 0) return std::nullopt;
  if (learns_ && left < open_ * least_piece_bytes) return next_share(left);
  auto piece = next_of_long(put_bytes, backlog);
  if (piece) piece->bytes = std::min(piece->bytes, left);
  return piece;
}

// If all lanes ended together, each would carry its weight's part of what is outstanding and of
// what is left; its share is what it does not have yet. The largest share is given first.
std::optional<Lanes::Piece> Lanes::next_share(std::size_t left) const {
  const double all_ns = static_cast<double>(outstanding_bytes() + left) / sum_of_weights();
  std::optional<Piece> best;
  double most = 0;
  for (std::size_t step = 0; step < count(); ++step) {
    const std::size_t lane = in_turn(step);
    const double share =
        all_ns * weight(lane) - static_cast<double>(lanes_[lane].outstanding_bytes);
    if (!lanes_[lane].has_room || (best && share <= most)) continue;
    most = share;
    best = Piece{lane, 0};
  }
  // The share of a lane that is full waits for it.
  if (!best || most <= 0) return std::nullopt;
  const auto lines = static_cast<std::size_t>(most) / line_bytes * line_bytes;
  best->bytes = std::min(left, std::max(lines, least_part_bytes));
  if (left - best->bytes < least_part_bytes) best->bytes = left;
  return best;
}

// The lane on which a piece arrives first. Where that one is full, another takes it if it arrives
// there before everything that waits could have arrived on all lanes together.
std::optional<Lanes::Piece> Lanes::next_of_long(std::size_t put_bytes,
                                                std::uint64_t backlog) const {
  const std::size_t part =
      std::clamp(put_bytes / (pieces_a_lane * open_), least_piece_bytes, most_piece_bytes);
  double largest = 0;
  for (std::size_t lane = 0; lane < count(); ++lane)
    if (is_open(lane)) largest = std::max(largest, weight(lane));
  struct Candidate {
    Piece piece;
    double ns;
  };
  std::optional<Candidate> first, first_with_room;
  for (std::size_t step = 0; step < count(); ++step) {
    const std::size_t lane = in_turn(step);
    if (!is_open(lane)) continue;
    const auto fair = static_cast<std::size_t>(static_cast<double>(part) * weight(lane) / largest);
    const std::size_t bytes = learns_ ? std::max(fair / line_bytes * line_bytes, least_piece_bytes)
                                      : one_rail_piece_bytes;
    const Candidate here{
        {lane, bytes}, static_cast<double>(lanes_[lane].outstanding_bytes + bytes) / weight(lane)};
    if (!first || here.ns < first->ns) first = here;
    if (lanes_[lane].has_room && (!first_with_room || here.ns < first_with_room->ns))
      first_with_room = here;
  }
  if (!first_with_room) return std::nullopt;
  const double all_ns = static_cast<double>(outstanding_bytes() + backlog) / sum_of_weights();
  if (first_with_room->ns > first->ns && first_with_room->ns > all_ns) return std::nullopt;
  return first_with_room->piece;
}

void Lanes::give(const Piece& piece) {
  lanes_[piece.lane].outstanding_bytes += piece.bytes;
  turn_ = (piece.lane + 1) % count();
  ++pieces_;
}

std::uint64_t Lanes::outstanding_bytes() const {
  return std::accumulate(
      lanes_.begin(), lanes_.end(), std::uint64_t{0},
      [](std::uint64_t sum, const Lane& lane) { return sum + lane.outstanding_bytes; });
}

}  // namespace unisono::transport
