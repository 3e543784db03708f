#include "transport/lanes/arrivals.h"

namespace unisono::transport {

Arrivals::Outcome Arrivals::note(std::uint64_t number) {
  if (number < in_order_) return Outcome::repeated;
  if (number - in_order_ >= window) return Outcome::ahead;
  const auto place = [](std::uint64_t of) { return static_cast<std::size_t>(of % window); };
  if (number > in_order_) {
    if (overtaken_by_.empty()) overtaken_by_.resize(window);
    if (overtaken_by_[place(number)]) return Outcome::repeated;
    overtaken_by_[place(number)] = true;
    return Outcome::counted;
  }
  ++in_order_;
  while (!overtaken_by_.empty() && overtaken_by_[place(in_order_)]) {
    overtaken_by_[place(in_order_)] = false;
    ++in_order_;
  }
  return Outcome::counted;
}

}  // namespace unisono::transport
