// Where nodes are in the network: the rack, the zone and the building of each, or what the levels
// of a cluster are called.
//
// A node's *location* names a unit of each level, the nearest level first: "rack=r12,zone=z3".
// Units of one name in different units above are different ones, so levels always nest. "+TIME"
// after a unit says how much longer a message takes that leaves it: "rack=r12+12us,zone=z3+28us". A
// level without a time costs nothing in the model of plans.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::topo {

inline constexpr std::size_t max_levels = 6;
inline constexpr std::size_t max_level_name_bytes = 63;  // of a level, and of a unit
inline constexpr std::size_t max_location_bytes = 1024;

struct LevelUnit {
  std::string level;
  std::string unit;
  std::int64_t leaving_ns = 0;  // what a message takes longer that leaves the unit
  bool operator==(const LevelUnit&) const = default;
};
using Location = std::vector<LevelUnit>;  // the nearest level first; empty: not known

// Misuse that quotes what is wrong and says what would be right.
Result<Location> parse_location(std::string_view text);
std::string to_text(const Location& location);
// "rack+12us,zone": what must be the same at all nodes.
std::string levels_text(const Location& location);

// The locations of all nodes of a group.
class Levels {
 public:
  Levels() = default;
  // One for each node, each with the same levels, or all of them empty. Misuse names two nodes.
  static Result<Levels> of_nodes(std::span<const Location> by_node);
  // Units of so many consecutive nodes, as cluster files have them: "rack 0", "rack 1", and so on.
  struct Span {
    std::string level;
    int nodes = 1;
    std::int64_t leaving_ns = 0;
  };
  static Result<Levels> of_spans(int nodes, std::span<const Span> spans);
  // Those of some of the nodes; node i there is nodes[i] here.
  Levels of(std::span<const int> nodes) const;

  bool empty() const { return names_.empty(); }
  int count() const { return static_cast<int>(names_.size()); }
  int nodes() const { return empty() ? 0 : static_cast<int>(unit_of_.front().size()); }
  const std::string& name(int level) const { return names_[static_cast<std::size_t>(level)]; }
  std::int64_t leaving_ns(int level) const { return leaving_ns_[static_cast<std::size_t>(level)]; }
  // Units are numbered in the order in which nodes first name them.
  int units(int level) const;
  int unit_of(int level, int node) const {
    return unit_of_[static_cast<std::size_t>(level)][static_cast<std::size_t>(node)];
  }
  // How many levels a message between two nodes leaves: 0 inside a unit of the nearest level,
  // count() where no unit has both.
  int left_between(int node, int other) const;
  // The most that a message between any two nodes leaves.
  int most_left() const;
  // Such a message takes so much longer than one inside a unit of the nearest level.
  double longer_us(int levels_left) const {
    return levels_left == 0 ? 0 : static_cast<double>(leaving_ns(levels_left - 1)) * 1e-3;
  }
  // "inside a rack", "between racks", "between buildings".
  std::string crossing(int levels_left) const;
  // All nodes, those of a unit one after another, else in the order of their numbers.
  std::vector<int> near_order() const;

 private:
  std::vector<std::string> names_;
  std::vector<std::int64_t> leaving_ns_;
  std::vector<std::vector<int>> unit_of_;  // by level and node
};

}  // namespace unisono::topo
