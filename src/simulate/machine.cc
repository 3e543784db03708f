#include "simulate/machine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/try.h"

namespace unisono::simulate {
namespace {

constexpr double max_gb_s = 1e9;

class Checker {
 public:
  explicit Checker(std::string_view machine) : machine_(machine) {}

  void whole(std::string_view what, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value >= least && value <= most) return;
    fail(what, str(value), str("it must be ", least, " to ", most));
  }
  void duration(std::string_view what, double ns) {
    if (ns >= 0 && ns <= max_duration_ns) return;
    fail(what, str(ns, " ns"), "it must be 0 to 100000 s");
  }
  void bandwidth(std::string_view what, double gb_s, bool may_be_zero = false) {
    if ((gb_s > 0 || (may_be_zero && gb_s == 0)) && gb_s <= max_gb_s) return;
    fail(what, str(gb_s, " GB/s"), may_be_zero ? "it must be 0 or more" : "it must be above 0");
  }
  void fail(std::string_view what, std::string_view value, std::string_view right) {
    if (!status_.ok()) return;
    status_ = misuse("machine ", machine_, ": ", what, " is ", value, "; ", right);
  }
  Status finish() { return std::move(status_); }

 private:
  std::string_view machine_;
  Status status_;
};

void check_protocol(Checker& in, Protocol protocol, const ProtocolCosts& costs) {
  constexpr std::array<std::string_view, link_kinds> kinds{" inside a node", " between nodes"};
  const auto named = [&](std::string_view what, std::size_t kind) {
    return str(name(protocol), ": ", what, kinds[kind]);
  };
  in.duration(str(name(protocol), ": launch"), costs.launch_ns);
  in.duration(str(name(protocol), ": gap between launches"), costs.launch_gap_ns);
  in.duration(str(name(protocol), ": overhead of a reduction"), costs.reduction_overhead_ns);
  in.duration(str(name(protocol), ": overhead of a copy"), costs.copy_overhead_ns);
  in.bandwidth(str(name(protocol), ": bandwidth of reductions"), costs.reduce_gb_s, true);
  in.bandwidth(str(name(protocol), ": bandwidth of copies"), costs.copy_gb_s, true);
  for (std::size_t kind = 0; kind < link_kinds; ++kind) {
    in.duration(named("send overhead", kind), costs.send_overhead_ns[kind]);
    in.duration(named("receive overhead", kind), costs.recv_overhead_ns[kind]);
    in.duration(named("extra latency", kind), costs.extra_latency_ns[kind]);
    in.bandwidth(named("a thread block's bandwidth", kind), costs.thread_block_gb_s[kind]);
    in.bandwidth(named("receive bandwidth", kind), costs.receive_gb_s[kind], true);
  }
  const double wire = costs.wire_bytes_per_byte;
  if (std::isnan(wire) || wire < 1 || wire > 16)
    in.fail(str(name(protocol), ": bytes on the wire for each byte"),
            str(costs.wire_bytes_per_byte), "it must be 1 to 16");
  in.whole(str(name(protocol), ": bytes of a slot"), costs.slot_bytes, 64, std::int64_t{1} << 40);
}

void check_levels(Checker& in, const Machine& machine) {
  if (machine.nodes > 1 && machine.levels.empty())
    in.fail("the number of network levels", "0", "several nodes need at least one");
  int inner = 1;
  for (const Level& level : machine.levels) {
    const auto named = [&](std::string_view what) { return str("level ", level.name, ": ", what); };
    in.whole(named("nodes of a unit"), level.nodes, inner, max_nodes);
    if (level.nodes >= 1 && level.nodes % inner != 0)
      in.fail(named("nodes of a unit"), str(level.nodes),
              str("it must be a multiple of the level inside, ", inner));
    in.duration(named("latency"), level.latency_ns);
    in.whole(named("uplinks"), level.uplinks, 0, max_nodes);
    in.bandwidth(named("bandwidth of an uplink"), level.uplink_gb_s, level.uplinks == 0);
    inner = std::max(level.nodes, 1);
  }
  if (machine.nodes > 1 && inner < machine.nodes)
    in.fail("the number of nodes", str(machine.nodes),
            str("the outermost level joins only ", inner));
}

}  // namespace

Status check(const Machine& machine) {
  Checker in(machine.name);
  in.whole("the number of nodes", machine.nodes, 1, max_nodes);
  // One node alone may be all there is, as in LogGOPS.
  in.whole("ranks of a node", machine.ranks_per_node, 1,
           machine.nodes == 1 ? max_machine_ranks : max_ranks_per_node);
  in.whole("the number of ranks", std::int64_t{machine.nodes} * machine.ranks_per_node, 1,
           std::numeric_limits<int>::max());
  in.duration("latency inside a node", machine.node_latency_ns);
  in.duration("gap inside a node", machine.node_gap_ns);
  in.bandwidth("bandwidth inside a node", machine.node_gb_s);
  in.whole("NICs of a node", machine.nics_per_node, 1, max_ranks_per_node);
  in.bandwidth("bandwidth of a NIC", machine.nic_gb_s);
  in.duration("gap of a NIC", machine.nic_gap_ns);
  in.whole("the burst of a NIC", machine.nic_burst_bytes, 0, std::int64_t{1} << 40);
  if (machine.nic_of_local_rank.size() != static_cast<std::size_t>(machine.ranks_per_node))
    in.fail("the number of ranks with a NIC", str(machine.nic_of_local_rank.size()),
            str("each of a node's ", machine.ranks_per_node, " ranks needs one"));
  for (const int nic : machine.nic_of_local_rank)
    in.whole("the NIC of a rank", nic, 0, machine.nics_per_node - 1);
  check_levels(in, machine);
  for (int i = 0; i < protocol_count; ++i)
    check_protocol(in, static_cast<Protocol>(i), machine.protocols[static_cast<std::size_t>(i)]);
  in.bandwidth("bandwidth of reductions", machine.reduce_gb_s, true);
  in.bandwidth("bandwidth of copies", machine.copy_gb_s, true);
  in.whole("slots of a connection", machine.slots, 1, 1 << 16);
  in.whole("tiles", machine.tiles, 1, 1 << 16);
  return in.finish();
}

Result<topo::Placement> place(const Machine& machine, int ranks, int nodes) {
  if (ranks < 1 || ranks > max_machine_ranks)
    return misuse("ranks is ", ranks, "; it must be 1 to ", max_machine_ranks);
  if (ranks > machine.max_ranks())
    return misuse("ranks is ", ranks, "; ", machine.name, " has ", machine.max_ranks(), " (",
                  machine.nodes, " nodes of ", machine.ranks_per_node, ")");
  const int fewest = (ranks + machine.ranks_per_node - 1) / machine.ranks_per_node;
  if (nodes == 0) {
    std::vector<int> filled(static_cast<std::size_t>(fewest), machine.ranks_per_node);
    filled.back() = ranks - (fewest - 1) * machine.ranks_per_node;
    return topo::Placement::blocks(filled);
  }
  if (nodes < fewest || nodes > std::min(ranks, machine.nodes))
    return misuse("nodes is ", nodes, "; ", ranks, " ranks on ", machine.name, " need ", fewest,
                  " to ", std::min(ranks, machine.nodes));
  std::vector<int> even;
  for (int node = 0; node < nodes; ++node)
    even.push_back(ranks / nodes + (node < ranks % nodes ? 1 : 0));
  return topo::Placement::blocks(even);
}

int level_between(const Machine& machine, int node, int other_node) {
  int level = 0;
  for (; level + 1 < static_cast<int>(machine.levels.size()); ++level) {
    const int unit = machine.levels[static_cast<std::size_t>(level)].nodes;
    if (node / unit == other_node / unit) break;
  }
  return level;
}

Machine log_gops_machine(int ranks, const LogGops& parameters) {
  Machine machine;
  machine.name = "loggops";
  machine.ranks_per_node = ranks;
  machine.nic_of_local_rank.assign(static_cast<std::size_t>(ranks), 0);
  machine.node_latency_ns = parameters.latency_ns;
  machine.node_gap_ns = parameters.gap_ns;
  // As good as without limit: 10^-9 ns a byte.
  const auto rate = [](double ns_per_byte) { return ns_per_byte > 0 ? 1 / ns_per_byte : max_gb_s; };
  machine.node_gb_s = rate(parameters.gap_ns_per_byte);
  for (ProtocolCosts& costs : machine.protocols) {
    costs.send_overhead_ns.fill(parameters.overhead_ns);
    costs.recv_overhead_ns.fill(parameters.overhead_ns);
    costs.thread_block_gb_s.fill(rate(parameters.overhead_ns_per_byte));
  }
  return machine;
}

}  // namespace unisono::simulate
