#include "simulate/goal.h"

#include <algorithm>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"

namespace unisono::simulate::goal {

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::send:
      return "send";
    case Kind::recv:
      return "recv";
    case Kind::calc:
      return "calc";
  }
  return "?";
}

std::string describe(const Operation& operation) {
  const auto number = [](std::uint32_t value) {
    return value == any ? std::string("any") : str(value);
  };
  if (operation.kind == Kind::calc) return str("calc of ", operation.size, " ns");
  return str(name(operation.kind), " of ", operation.size, " bytes ",
             operation.kind == Kind::send ? "to " : "from ", number(operation.peer), " with tag ",
             number(operation.tag));
}

Result<Rank> Rank::make(std::vector<Operation> operations,
                        const std::vector<Requirement>& requirements, std::string_view where) {
  // Numbers of both have 32 bits, and `any` is none of them.
  constexpr std::size_t most = UINT32_MAX;
  if (std::max(operations.size(), requirements.size()) >= most)
    return misuse(where, ": ", operations.size(), " operations and ", requirements.size(),
                  " requirements; a rank may have ", most - 1, " of each");
  Rank rank;
  rank.operations_ = std::move(operations);
  rank.first_.assign(2 * rank.operations_.size() + 1, 0);
  const auto list = [](const Requirement& one) {
    return 2 * std::size_t{one.from} + (one.at_start ? 1 : 0);
  };
  for (const Requirement& one : requirements) ++rank.first_[list(one) + 1];
  for (std::size_t i = 1; i < rank.first_.size(); ++i) rank.first_[i] += rank.first_[i - 1];
  std::vector<std::uint32_t> next(rank.first_.begin(), rank.first_.end());
  rank.edges_.resize(requirements.size());
  for (const Requirement& one : requirements) rank.edges_[next[list(one)]++] = one.to;
  UNISONO_TRY(rank.find_cycle(where));
  return rank;
}

std::vector<std::uint32_t> Rank::requirement_counts() const {
  std::vector<std::uint32_t> counts(operations_.size());
  for (const std::uint32_t to : edges_) ++counts[to];
  return counts;
}

// What is left when everything that waits for nothing has been taken away, again and again, holds a
// cycle.
Status Rank::find_cycle(std::string_view where) const {
  std::vector<std::uint32_t> waits = requirement_counts();
  std::vector<std::uint32_t> ready;
  for (std::uint32_t i = 0; i < waits.size(); ++i)
    if (waits[i] == 0) ready.push_back(i);
  std::size_t taken = 0;
  while (!ready.empty()) {
    const std::uint32_t done = ready.back();
    ready.pop_back();
    ++taken;
    for (const auto& waiters : {after_end(done), after_start(done)})
      for (const std::uint32_t to : waiters)
        if (--waits[to] == 0) ready.push_back(to);
  }
  if (taken == operations_.size()) return {};
  // Who is left waits for another that is left: walk until one comes twice.
  std::vector<std::uint32_t> required(operations_.size(), any);
  for (std::uint32_t from = 0; from < operations_.size(); ++from)
    if (waits[from] > 0)
      for (const auto& waiters : {after_end(from), after_start(from)})
        for (const std::uint32_t to : waiters) required[to] = from;
  std::vector<bool> seen(operations_.size());
  auto at = static_cast<std::uint32_t>(
      std::find_if(waits.begin(), waits.end(), [](std::uint32_t count) { return count > 0; }) -
      waits.begin());
  while (!seen[at]) {
    seen[at] = true;
    at = required[at];
  }
  constexpr int most_shown = 16;
  std::string text = str("operation ", at, " (", describe(operations_[at]), ")");
  int shown = 0;
  std::uint32_t other = at;
  do {
    other = required[other];
    if (++shown <= most_shown) append(text, str(" requires operation ", other));
  } while (other != at);
  if (shown > most_shown) append(text, str(" and ", shown - most_shown, " more in the cycle"));
  return misuse(where, ": the requirements form a cycle: ", text);
}

Result<Schedule> read(std::string_view contents) {
  // No text begins so: its first byte would be unprintable.
  constexpr std::string_view binary_begin{"\x7f\x10\0\0\0\0\0\0", 8};
  return contents.starts_with(binary_begin) ? read_binary(contents) : read_text(contents);
}

}  // namespace unisono::simulate::goal
