#include "simulate/machines.h"

#include <gtest/gtest.h>

namespace unisono::simulate::test {

Machine cluster(int nodes, int ranks_per_node, int nics) {
  Machine machine;
  machine.name = "test";
  machine.nodes = nodes;
  machine.ranks_per_node = ranks_per_node;
  machine.node_latency_ns = 700;
  machine.node_gb_s = 40;
  machine.node_gap_ns = 11;
  machine.nics_per_node = nics;
  machine.nic_gb_s = 9;
  machine.nic_gap_ns = 17;
  for (int i = 0; i < ranks_per_node; ++i)
    machine.nic_of_local_rank.push_back(i * nics / ranks_per_node);
  machine.levels.push_back(
      {.name = "rack", .nodes = 2, .latency_ns = 1900, .uplinks = 2, .uplink_gb_s = 9});
  machine.levels.push_back({.name = "hall", .nodes = 2 * ((nodes + 1) / 2), .latency_ns = 4300});
  for (ProtocolCosts& costs : machine.protocols) {
    costs.launch_ns = 2300;
    costs.send_overhead_ns = {130, 310};
    costs.recv_overhead_ns = {170, 370};
    costs.thread_block_gb_s = {23, 13};
  }
  machine.reduce_gb_s = 57;
  machine.copy_gb_s = 71;
  return machine;
}

const algorithm::Entry& entry(Collective collective, std::string_view name) {
  const auto found = algorithm::find(collective, name);
  if (!found.ok()) {
    ADD_FAILURE() << found.error().message;
    std::abort();
  }
  return **found;
}

CollectiveCall call_of(Collective collective, topo::Placement placement, std::int64_t count) {
  CollectiveCall call;
  call.request.collective = collective;
  call.request.placement = std::move(placement);
  call.count = count;
  return call;
}

}  // namespace unisono::simulate::test
