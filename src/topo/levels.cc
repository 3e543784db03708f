#include "topo/levels.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"
#include "base/units.h"

namespace unisono::topo {
namespace {

constexpr std::string_view example = "rack=r12,zone=z3 or rack=r12+12us,zone=z3+28us";

bool is_name(std::string_view text) {
  const auto is_allowed = [](char one) {
    return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') ||
           one == '_' || one == '-' || one == '.' || one == ':' || one == '/';
  };
  return !text.empty() && text.size() <= max_level_name_bytes &&
         std::ranges::all_of(text, is_allowed);
}

Error not_a_name(std::string_view what, std::string_view text) {
  return misuse("the ", what, " '", text.substr(0, max_level_name_bytes), "' has ", text.size(),
                " bytes; it needs 1 to ", max_level_name_bytes, " letters, digits or any of _-.:/");
}

Result<LevelUnit> parse_unit(std::string_view text) {
  LevelUnit out;
  const auto equals = text.find('=');
  if (equals == std::string_view::npos)
    return misuse("'", text.substr(0, max_level_name_bytes), "' is not LEVEL=UNIT; write ",
                  example);
  out.level = text.substr(0, equals);
  const auto plus = text.find('+', equals);
  out.unit = text.substr(equals + 1, plus == std::string_view::npos ? plus : plus - equals - 1);
  if (!is_name(out.level)) return not_a_name("level", out.level);
  if (!is_name(out.unit)) return not_a_name(str("unit of level '", out.level, "'"), out.unit);
  if (plus == std::string_view::npos) return out;
  const Result<std::int64_t> time = parse_duration_ns(text.substr(plus + 1));
  if (!time.ok())
    return misuse("the time of level '", out.level, "': ", time.error().message, "; write ",
                  example);
  out.leaving_ns = *time;
  return out;
}

bool have_same_levels(const Location& one, const Location& other) {
  return std::ranges::equal(one, other, [](const LevelUnit& a, const LevelUnit& b) {
    return a.level == b.level && a.leaving_ns == b.leaving_ns;
  });
}

}  // namespace

Result<Location> parse_location(std::string_view text) {
  if (text.size() > max_location_bytes)
    return misuse("the levels have ", text.size(), " bytes; at most ", max_location_bytes,
                  " are allowed");
  Location out;
  while (!text.empty() || !out.empty()) {
    const auto comma = text.find(',');
    UNISONO_ASSIGN(LevelUnit unit, parse_unit(text.substr(0, comma)));
    if (std::ranges::any_of(out, [&](const LevelUnit& one) { return one.level == unit.level; }))
      return misuse("level '", unit.level, "' is named twice; name each level once");
    if (!out.empty() && unit.leaving_ns < out.back().leaving_ns)
      return misuse("a message that leaves level '", unit.level, "' takes ",
                    format_duration_ns(unit.leaving_ns), " longer, but one that leaves '",
                    out.back().level, "' ", format_duration_ns(out.back().leaving_ns),
                    "; name the nearest level first, with the shortest time");
    out.push_back(std::move(unit));
    if (out.size() > max_levels)
      return misuse("there are more than ", max_levels, " levels; name at most ", max_levels);
    if (comma == std::string_view::npos) break;
    text = text.substr(comma + 1);
  }
  return out;
}

std::string to_text(const Location& location) {
  std::string out;
  for (const LevelUnit& one : location) {
    append(out, str(out.empty() ? "" : ",", one.level, "=", one.unit));
    if (one.leaving_ns > 0) append(out, str("+", one.leaving_ns, "ns"));
  }
  return out;
}

std::string levels_text(const Location& location) {
  std::string out;
  for (const LevelUnit& one : location) {
    append(out, str(out.empty() ? "" : ",", one.level));
    if (one.leaving_ns > 0) append(out, str("+", format_duration_ns(one.leaving_ns)));
  }
  return out.empty() ? "none" : out;
}

Result<Levels> Levels::of_nodes(std::span<const Location> by_node) {
  Levels out;
  if (by_node.empty()) return out;
  const Location& first = by_node.front();
  for (std::size_t node = 1; node < by_node.size(); ++node)
    if (!have_same_levels(first, by_node[node]))
      return misuse("the levels of node 0 are ", levels_text(first), " and those of node ", node,
                    " are ", levels_text(by_node[node]), "; they must be the same at all nodes");
  for (std::size_t level = 0; level < first.size(); ++level) {
    out.names_.push_back(first[level].level);
    out.leaving_ns_.push_back(first[level].leaving_ns);
    // A unit is known by its own name and those of all units above.
    std::map<std::vector<std::string_view>, int> numbers;
    std::vector<int>& units = out.unit_of_.emplace_back();
    for (const Location& location : by_node) {
      std::vector<std::string_view> path;
      for (std::size_t above = level; above < location.size(); ++above)
        path.emplace_back(location[above].unit);
      units.push_back(
          numbers.try_emplace(std::move(path), static_cast<int>(numbers.size())).first->second);
    }
  }
  return out;
}

Result<Levels> Levels::of_spans(int nodes, std::span<const Span> spans) {
  std::vector<Location> locations(static_cast<std::size_t>(std::max(nodes, 0)));
  int inner = 1;
  for (const Span& span : spans) {
    if (span.nodes < inner || span.nodes % inner != 0)
      return misuse("a unit of level '", span.level, "' has ", span.nodes,
                    " nodes; it must be a multiple of ", inner,
                    ", the nodes in a unit of the level below");
    inner = span.nodes;
    for (int node = 0; node < nodes; ++node)
      locations[static_cast<std::size_t>(node)].push_back(
          {span.level, str(node / span.nodes), span.leaving_ns});
  }
  for (const Location& location :
       std::span(locations).first(std::min<std::size_t>(locations.size(), 1)))
    UNISONO_TRY(parse_location(to_text(location)));
  return of_nodes(locations);
}

Levels Levels::of(std::span<const int> nodes) const {
  Levels out;
  out.names_ = names_;
  out.leaving_ns_ = leaving_ns_;
  for (const std::vector<int>& all : unit_of_) {
    std::vector<int> number_of(all.size(), -1);
    std::vector<int>& units = out.unit_of_.emplace_back();
    int numbered = 0;
    for (const int node : nodes) {
      int& number = number_of[static_cast<std::size_t>(all[static_cast<std::size_t>(node)])];
      if (number < 0) number = numbered++;
      units.push_back(number);
    }
  }
  return out;
}

int Levels::units(int level) const {
  const std::vector<int>& units = unit_of_[static_cast<std::size_t>(level)];
  return units.empty() ? 0 : *std::ranges::max_element(units) + 1;
}

int Levels::left_between(int node, int other) const {
  int level = 0;
  while (level < count() && unit_of(level, node) != unit_of(level, other)) ++level;
  return level;
}

int Levels::most_left() const {
  int level = 0;
  while (level < count() && units(level) > 1) ++level;
  return level;
}

std::string Levels::crossing(int levels_left) const {
  return levels_left == 0 ? str("inside a ", name(0)) : str("between ", name(levels_left - 1), "s");
}

std::vector<int> Levels::near_order() const {
  std::vector<int> order(static_cast<std::size_t>(nodes()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [this](int a, int b) {
    for (int level = count() - 1; level >= 0; --level)
      if (unit_of(level, a) != unit_of(level, b)) return unit_of(level, a) < unit_of(level, b);
    return false;
  });
  return order;
}

}  // namespace unisono::topo
