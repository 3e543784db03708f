// Ranks that come from a peer, a file or a caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace unisono {

// A rank of a group of known size. A number from outside becomes one only where it is checked, so
// that a Rank may always be used as an index.
class Rank {
 public:
  static constexpr std::optional<Rank> among(std::int64_t number, int ranks) {
    if (number < 0 || number >= ranks) return std::nullopt;
    return Rank(static_cast<int>(number));
  }
  constexpr int number() const { return number_; }
  constexpr std::size_t index() const { return static_cast<std::size_t>(number_); }
  constexpr bool operator==(const Rank&) const = default;

 private:
  constexpr explicit Rank(int number) : number_(number) {}
  int number_;
};

}  // namespace unisono
