#include "simulate/machine_json.h"

#include "base/error.h"
#include "base/json.h"
#include "base/try.h"

namespace unisono::simulate {
namespace {

using json::ObjectReader;
using json::Value;

constexpr std::size_t max_levels = 8;

void read_pair(ObjectReader& in, std::string_view name, std::array<double, link_kinds>& out) {
  const json::Array* values = in.required_array(name);
  if (values == nullptr) return;
  if (values->size() != link_kinds)
    return in.fail(name, "must have two numbers: inside a node and between nodes");
  for (std::size_t i = 0; i < link_kinds; ++i) {
    if (!(*values)[i].is_number()) return in.fail(name, "must hold numbers only");
    out[i] = (*values)[i].number();
  }
}

Status read_protocol(const Value& value, const std::string& where, ProtocolCosts& out) {
  ObjectReader in(value, where);
  in.required("launch_ns", out.launch_ns);
  in.optional("launch_gap_ns", out.launch_gap_ns);
  in.optional("reduction_overhead_ns", out.reduction_overhead_ns);
  in.optional("copy_overhead_ns", out.copy_overhead_ns);
  in.optional("reduce_gb_s", out.reduce_gb_s);
  in.optional("copy_gb_s", out.copy_gb_s);
  read_pair(in, "send_overhead_ns", out.send_overhead_ns);
  read_pair(in, "recv_overhead_ns", out.recv_overhead_ns);
  read_pair(in, "extra_latency_ns", out.extra_latency_ns);
  read_pair(in, "thread_block_gb_s", out.thread_block_gb_s);
  read_pair(in, "receive_gb_s", out.receive_gb_s);
  in.required("wire_bytes_per_byte", out.wire_bytes_per_byte);
  in.required("slot_bytes", out.slot_bytes);
  return in.finish();
}

Status read_level(const Value& value, const std::string& where, Level& out) {
  ObjectReader in(value, where);
  in.required("name", out.name);
  in.required("nodes", out.nodes, 1, max_nodes);
  in.required("latency_ns", out.latency_ns);
  in.optional("uplinks", out.uplinks, 0, max_nodes);
  in.optional("uplink_gb_s", out.uplink_gb_s);
  in.optional("adaptive", out.adaptive);
  return in.finish();
}

void read_lists(ObjectReader& in, Machine& out) {
  if (const json::Array* nics = in.required_array("nic_of_local_rank")) {
    for (const Value& nic : *nics) {
      if (!nic.is_integer() || nic.integer() < 0 || nic.integer() >= max_ranks_per_node)
        return in.fail("nic_of_local_rank", "must hold numbers of NICs");
      out.nic_of_local_rank.push_back(static_cast<int>(nic.integer()));
    }
  }
  if (const json::Array* levels = in.required_array("levels")) {
    if (levels->size() > max_levels)
      return in.fail("levels", str("has ", levels->size(), " levels; at most ", max_levels));
    for (std::size_t i = 0; i < levels->size(); ++i)
      in.fail(read_level((*levels)[i], in.place("levels", i), out.levels.emplace_back()));
  }
  const Value* protocols = in.required("protocols");
  if (protocols == nullptr) return;
  ObjectReader each(*protocols, in.place("protocols"));
  for (int i = 0; i < protocol_count; ++i) {
    const auto protocol = name(static_cast<Protocol>(i));
    if (const Value* costs = each.required(protocol))
      each.fail(
          read_protocol(*costs, each.place(protocol), out.protocols[static_cast<std::size_t>(i)]));
  }
  in.fail(each.finish());
}

}  // namespace

Result<Machine> read_machine(std::string_view json) {
  UNISONO_ASSIGN(const Value document, json::parse(json, {.max_bytes = max_machine_bytes}));
  Machine machine;
  ObjectReader in(document, "machine");
  in.required("name", machine.name);
  in.required("nodes", machine.nodes, 1, max_nodes);
  in.required("ranks_per_node", machine.ranks_per_node, 1, max_ranks_per_node);
  in.required("node_latency_ns", machine.node_latency_ns);
  in.required("node_gb_s", machine.node_gb_s);
  in.optional("node_gap_ns", machine.node_gap_ns);
  in.required("nics_per_node", machine.nics_per_node, 1, max_ranks_per_node);
  in.required("nic_gb_s", machine.nic_gb_s);
  in.optional("nic_gap_ns", machine.nic_gap_ns);
  in.optional("nic_burst_bytes", machine.nic_burst_bytes);
  in.optional("reduce_gb_s", machine.reduce_gb_s);
  in.optional("copy_gb_s", machine.copy_gb_s);
  in.optional("ranks_share_core", machine.ranks_share_core);
  in.optional("slots", machine.slots, 1, 1 << 16);
  in.optional("tiles", machine.tiles, 1, 1 << 16);
  read_lists(in, machine);
  UNISONO_TRY(in.finish());
  UNISONO_TRY(check(machine));
  return machine;
}

}  // namespace unisono::simulate
