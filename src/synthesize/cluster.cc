// The links of a machine. Its ports, NICs and the units of its network become switches:
//
//   rank - node's switch          the port inside the node
//   rank - NIC - unit             NICs that ranks share are shared links
//   unit - unit - ...             uplinks are the lanes of one link
//
// Half of a latency is on the way up, half on the way down. Where uplinks do not limit, the link
// has a lane for every NIC below it.
#include <algorithm>
#include <map>

#include "base/try.h"
#include "synthesize/link_graph.h"

namespace unisono::synthesize {
namespace {

using simulate::Machine;

class Wires {
 public:
  Wires(const Machine& machine, const topo::Placement& placement)
      : machine_(machine), placement_(placement) {
    graph_.name = machine.name;
    graph_.ranks = placement.ranks();
  }

  LinkGraph run() {
    for (int node = 0; node < placement_.nodes(); ++node) {
      if (placement_.ranks_on(node) > 1) wire_inside(node);
      if (placement_.nodes() > 1) wire_nics(node);
    }
    return std::move(graph_);
  }

 private:
  // The whole cost of a message's start, of one kind of way.
  double latency(double ns, std::size_t kind) const {
    const simulate::ProtocolCosts& costs =
        machine_.protocols[static_cast<std::size_t>(Protocol::simple)];
    return ns + costs.extra_latency_ns[kind] + costs.send_overhead_ns[kind] +
           costs.recv_overhead_ns[kind];
  }

  int add_switch() { return graph_.ranks + graph_.switches++; }

  // Both ways.
  void connect(int below, int above, double latency_ns, double gb_s, int lanes = 1) {
    graph_.links.push_back({below, above, latency_ns / 2, gb_s, lanes});
    graph_.links.push_back({above, below, latency_ns / 2, gb_s, lanes});
  }

  void wire_inside(int node) {
    const int inside = add_switch();
    for (int i = 0; i < placement_.ranks_on(node); ++i)
      connect(placement_.rank_at(node, i), inside, latency(machine_.node_latency_ns, 0),
              machine_.node_gb_s);
  }

  void wire_nics(int node) {
    std::map<int, int> nics;  // its switch
    for (int i = 0; i < placement_.ranks_on(node); ++i) {
      const int number = machine_.nic_of_local_rank[static_cast<std::size_t>(i)];
      auto [nic, is_new] = nics.try_emplace(number, 0);
      if (is_new) {
        nic->second = add_switch();
        connect(nic->second, unit(0, node), latency(machine_.levels[0].latency_ns, 1),
                machine_.nic_gb_s);
      }
      connect(placement_.rank_at(node, i), nic->second, 0, machine_.nic_gb_s);
    }
  }

  // The switch of the unit that a node is in at a level; made, with all above it, when first asked.
  int unit(std::size_t level, int node) {
    const simulate::Level& here = machine_.levels[level];
    auto [known, is_new] = units_.try_emplace({level, node / here.nodes}, 0);
    if (!is_new) return known->second;
    const int made = add_switch();
    known->second = made;
    const bool all_here = (placement_.nodes() - 1) / here.nodes == 0;
    if (level + 1 < machine_.levels.size() && !all_here) {
      const simulate::Level& above = machine_.levels[level + 1];
      const bool limits = here.uplinks > 0;
      const double gb_s = limits ? here.uplink_gb_s : machine_.nic_gb_s;
      const int lanes = limits ? here.uplinks : here.nodes * machine_.nics_per_node;
      connect(made, unit(level + 1, node), std::max(0.0, above.latency_ns - here.latency_ns), gb_s,
              std::min(lanes, max_lanes));
    }
    return made;
  }

  const Machine& machine_;
  const topo::Placement& placement_;
  LinkGraph graph_;
  std::map<std::pair<std::size_t, int>, int> units_;
};

}  // namespace

Result<LinkGraph> link_graph_of(const Machine& machine, int ranks, int nodes) {
  UNISONO_TRY(simulate::check(machine));
  UNISONO_ASSIGN(const topo::Placement placement, simulate::place(machine, ranks, nodes));
  LinkGraph graph = Wires(machine, placement).run();
  UNISONO_TRY(check(graph));
  return graph;
}

}  // namespace unisono::synthesize
