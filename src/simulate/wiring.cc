#include "simulate/wiring.h"

#include "base/str.h"

namespace unisono::simulate {
namespace {

// Ranks are below 2^20 and channels below 2^12: plan::format_limits().
std::uint64_t key_of(int from, int to, int channel) {
  return (static_cast<std::uint64_t>(from) << 40) | (static_cast<std::uint64_t>(to) << 16) |
         static_cast<std::uint64_t>(channel);
}

}  // namespace

int nic_of(const Machine& machine, const topo::Placement& placement, int rank) {
  // Fewer ranks than the node has places still spread over its NICs.
  const int places = machine.ranks_per_node / placement.ranks_on(placement.node_of(rank));
  const int local = placement.local_index(rank) * std::max(places, 1);
  return machine.nic_of_local_rank[static_cast<std::size_t>(local)];
}

std::vector<Endpoint> endpoints_of(const Machine& machine, const topo::Placement& placement) {
  std::vector<Endpoint> endpoints;
  const int ranks = placement.ranks();
  endpoints.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const int node = placement.node_of(rank);
    const int nic = nic_of(machine, placement, rank);
    endpoints.push_back(
        {.node_port = static_cast<std::uint32_t>(rank),
         .nic_port = static_cast<std::uint32_t>(ranks + node * machine.nics_per_node + nic),
         .core = static_cast<std::uint32_t>(rank),
         .node = node,
         .shown_rank = rank});
  }
  return endpoints;
}

int way_between(const Machine& machine, int node, int other_node) {
  return node == other_node ? 0 : 1 + level_between(machine, node, other_node);
}

int way_between(const Machine& machine, const topo::Placement& placement, int from, int to) {
  return way_between(machine, placement.node_of(from), placement.node_of(to));
}

std::vector<Wire> wires_of(const Machine& machine, const topo::Placement& placement,
                           const plan::RankProgram& program) {
  std::vector<Wire> wires;
  for (const plan::ThreadBlock& block : program.thread_blocks) {
    Wire& wire = wires.emplace_back();
    if (block.send_peer >= 0) {
      wire.send_key = key_of(program.rank, block.send_peer, block.channel);
      wire.send_way = way_between(machine, placement, program.rank, block.send_peer);
    }
    if (block.recv_peer >= 0) wire.recv_key = key_of(block.recv_peer, program.rank, block.channel);
  }
  return wires;
}

std::string shown_name(const topo::Placement& placement, int rank) {
  if (placement.nodes() == 1) return str("rank ", rank);
  return str("rank ", rank, ", node ", placement.node_of(rank));
}

}  // namespace unisono::simulate
