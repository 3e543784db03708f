#include "simulate/goal_standstill.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/str.h"

namespace unisono::simulate::goal {
namespace {

struct Place {
  std::uint32_t rank = 0, operation = 0;
  auto operator<=>(const Place&) const = default;
};

class Standstill {
 public:
  Standstill(const Schedule& schedule, const States& progress)
      : schedule_(schedule), progress_(progress) {}
  std::string explain(Place first) const;

 private:
  const Operation& at(Place place) const {
    return schedule_.ranks[place.rank].operations()[place.operation];
  }
  std::string shown(Place place) const {
    return str("rank ", place.rank, ", operation ", place.operation, " (", describe(at(place)),
               ")");
  }
  std::optional<Place> partner(Place place) const;
  Place blocked_by(Place place) const;

  const Schedule& schedule_;
  const States& progress_;
};

// The operation that would match this one, if there is one that has not begun.
std::optional<Place> Standstill::partner(Place place) const {
  const Operation& one = at(place);
  if (one.peer == any) return std::nullopt;
  const Kind wanted = one.kind == Kind::send ? Kind::recv : Kind::send;
  const auto others = schedule_.ranks[one.peer].operations();
  const auto fits = [](std::uint32_t a, std::uint32_t b) { return a == b || a == any || b == any; };
  for (std::uint32_t i = 0; i < others.size(); ++i)
    if (others[i].kind == wanted && progress_[one.peer][i] == State::waits &&
        fits(others[i].peer, place.rank) && fits(others[i].tag, one.tag))
      return Place{one.peer, i};
  return std::nullopt;
}

// What a rank is at that keeps this operation from beginning.
Place Standstill::blocked_by(Place place) const {
  const Rank& rank = schedule_.ranks[place.rank];
  std::vector<std::vector<std::uint32_t>> required(rank.operations().size());
  for (std::uint32_t from = 0; from < required.size(); ++from)
    for (const auto& waiters : {rank.after_end(from), rank.after_start(from)})
      for (const std::uint32_t to : waiters) required[to].push_back(from);
  std::set<std::uint32_t> seen{place.operation};
  std::vector<std::uint32_t> open{place.operation};
  while (!open.empty()) {
    const std::uint32_t now = open.back();
    open.pop_back();
    if (progress_[place.rank][now] == State::begun) return {place.rank, now};
    for (const std::uint32_t from : required[now])
      if (progress_[place.rank][from] != State::ended && seen.insert(from).second)
        open.push_back(from);
  }
  return place;
}

std::string Standstill::explain(Place first) const {
  std::vector<Place> way{first};
  while (true) {
    const std::optional<Place> awaited = partner(way.back());
    if (!awaited) {
      const Operation& one = at(way.back());
      return str("; ", shown(way.back()), " waits",
                 one.peer == any ? std::string(", and nobody sends it anything")
                                 : str(", and rank ", one.peer, " has no ",
                                       one.kind == Kind::send ? "receive" : "send",
                                       " for it that has not begun"));
    }
    const Place next = blocked_by(*awaited);
    const auto again = std::find(way.begin(), way.end(), next);
    if (again == way.end()) {
      way.push_back(next);
      continue;
    }
    std::string text = "; they wait for each other:";
    constexpr std::ptrdiff_t most_shown = 32;
    for (auto one = again; one != way.end() && one - again < most_shown; ++one)
      append(text, str("\n  ", shown(*one), " waits for rank ", at(*one).peer));
    if (way.end() - again > most_shown)
      append(text, str("\n  and ", way.end() - again - most_shown, " more in the cycle"));
    return text;
  }
}

}  // namespace

Status check_progress(const Schedule& schedule, const States& progress) {
  std::size_t left = 0;
  std::optional<Place> first;
  for (std::uint32_t rank = 0; rank < progress.size(); ++rank)
    for (std::uint32_t i = 0; i < progress[rank].size(); ++i) {
      if (progress[rank][i] != State::ended) ++left;
      if (!first && progress[rank][i] == State::begun) first = Place{rank, i};
    }
  if (left == 0) return {};
  if (!first) return bug(left, " GOAL operations never began although nothing blocks them");
  return misuse("the simulation deadlocks with ", left,
                left == 1 ? " operation that has not ended" : " operations that have not ended",
                Standstill(schedule, progress).explain(*first));
}

}  // namespace unisono::simulate::goal
