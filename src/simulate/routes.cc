#include "simulate/routes.h"

namespace unisono::simulate {
namespace {

// Which of the parallel links a flow takes at a level: what a switch computes from addresses, ports
// and a seed of its own.
std::uint64_t hash(std::uint64_t flow, std::uint64_t level) {
  std::uint64_t x = (flow + 1) * 0x9e3779b97f4a7c15 ^ (level + 1) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

}  // namespace

Routes::Routes(const Machine& machine, int nodes, const std::vector<double>& port_gb_s)
    : machine_(machine) {
  for (const double gb_s : port_gb_s) {
    // A number that no rank uses has no port.
    out_.push_back(network_.add_link(gb_s > 0 ? gb_s : 1));
    in_.push_back(network_.add_link(gb_s > 0 ? gb_s : 1));
  }
  for (std::size_t i = 0; i + 1 < machine.levels.size(); ++i) {
    const Level& level = machine.levels[i];
    units_.emplace_back();
    if (level.uplinks > 0) add_uplinks(level, (nodes + level.nodes - 1) / level.nodes);
  }
}

void Routes::add_uplinks(const Level& level, int units) {
  const int links = level.adaptive ? 1 : level.uplinks;
  const double gb_s = level.adaptive ? level.uplink_gb_s * level.uplinks : level.uplink_gb_s;
  for (int unit = 0; unit < units; ++unit) {
    Unit& added = units_.back().emplace_back(Unit{0, 0, links});
    for (int i = 0; i < links; ++i) {
      const FlowNetwork::Link link = network_.add_link(gb_s);
      if (i == 0) added.first_up = link;
    }
    for (int i = 0; i < links; ++i) {
      const FlowNetwork::Link link = network_.add_link(gb_s);
      if (i == 0) added.first_down = link;
    }
  }
}

std::vector<LinkUse> Routes::use() const {
  std::vector<LinkUse> all;
  for (std::size_t level = 0; level < units_.size(); ++level) {
    for (std::size_t unit = 0; unit < units_[level].size(); ++unit) {
      const Unit& one = units_[level][unit];
      const double gb_s = machine_.levels[level].uplink_gb_s *
                          (machine_.levels[level].adaptive ? machine_.levels[level].uplinks : 1);
      for (const bool up : {true, false}) {
        for (int i = 0; i < one.links; ++i) {
          const auto link =
              (up ? one.first_up : one.first_down) + static_cast<FlowNetwork::Link>(i);
          all.push_back({.level = static_cast<int>(level),
                         .unit = static_cast<int>(unit),
                         .number = i,
                         .up = up,
                         .capacity_gb_s = gb_s,
                         .bytes = network_.bytes_over(link)});
        }
      }
    }
  }
  return all;
}

const std::vector<FlowNetwork::Link>& Routes::between(const Ends& ends) {
  path_.clear();
  path_.push_back(out_[ends.send_port]);
  if (ends.from_node != ends.to_node) {
    const int top = level_between(machine_, ends.from_node, ends.to_node);
    for (int i = 0; i < top; ++i) {
      const std::vector<Unit>& units = units_[static_cast<std::size_t>(i)];
      if (units.empty()) continue;
      const int nodes = machine_.levels[static_cast<std::size_t>(i)].nodes;
      const Unit& up = units[static_cast<std::size_t>(ends.from_node / nodes)];
      const Unit& down = units[static_cast<std::size_t>(ends.to_node / nodes)];
      const auto choice = static_cast<FlowNetwork::Link>(
          hash(ends.flow, static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(up.links));
      path_.push_back(up.first_up + choice);
      path_.push_back(down.first_down + choice);
    }
  }
  path_.push_back(in_[ends.recv_port]);
  return path_;
}

}  // namespace unisono::simulate
