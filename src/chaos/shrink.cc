#include <algorithm>

#include "chaos/play.h"

namespace unisono::chaos {
namespace {

// The kind of what went wrong: its words without its numbers.
std::string kind_of(const Outcome& outcome) {
  std::string out;
  if (outcome.wrong.empty()) return out;
  for (const char letter : outcome.wrong.front())
    if (std::string_view("0123456789").find(letter) == std::string_view::npos) out += letter;
  return out.substr(0, 40);
}

}  // namespace

// Leaves out halves, quarters and so on of the operations, then single strikes.
Scenario shrink(const Scenario& scenario, const std::function<bool(const Scenario&)>& fails) {
  Scenario best = scenario;
  for (std::size_t part = std::max<std::size_t>(best.operations.size() / 2, 1); part > 0;) {
    bool is_smaller = false;
    for (std::size_t at = 0; at < best.operations.size();) {
      Scenario smaller = best;
      const auto first = smaller.operations.begin() + static_cast<std::ptrdiff_t>(at);
      smaller.operations.erase(first, first + static_cast<std::ptrdiff_t>(
                                                  std::min(part, smaller.operations.size() - at)));
      if (fails(smaller)) {
        best = std::move(smaller);
        is_smaller = true;
      } else {
        at += part;
      }
    }
    if (!is_smaller) part /= 2;
  }
  for (std::size_t at = 0; at < best.strikes.size();) {
    Scenario smaller = best;
    smaller.strikes.erase(smaller.strikes.begin() + static_cast<std::ptrdiff_t>(at));
    if (fails(smaller))
      best = std::move(smaller);
    else
      ++at;
  }
  return best;
}

Scenario shrink(const Scenario& scenario, const Outcome& outcome) {
  const std::string kind = kind_of(outcome);
  return shrink(scenario, [&](const Scenario& tried) { return kind_of(play(tried)) == kind; });
}

}  // namespace unisono::chaos
