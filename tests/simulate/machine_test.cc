// Machines from JSON and by hand, right and wrong; and where ranks are put on them.
#include <gtest/gtest.h>

#include "simulate/machine_json.h"
#include "simulate/machines.h"
#include "simulate/wiring.h"

namespace unisono::simulate {
namespace {

std::string protocol() {
  return R"({"launch_ns": 1, "send_overhead_ns": [1, 2], "recv_overhead_ns": [1, 2],
    "extra_latency_ns": [0, 0], "thread_block_gb_s": [10, 5],
    "receive_gb_s": [8, 0], "launch_gap_ns": 3, "reduction_overhead_ns": 4, "copy_overhead_ns": 5,
    "reduce_gb_s": 7, "copy_gb_s": 6, "wire_bytes_per_byte": 1,
    "slot_bytes": 4096})";
}

std::string machine_text() {
  return R"({"name": "m", "nodes": 4, "ranks_per_node": 2, "node_latency_ns": 100,
    "node_gb_s": 10, "nics_per_node": 1, "nic_gb_s": 5, "nic_of_local_rank": [0, 0],
    "levels": [{"name": "all", "nodes": 4, "latency_ns": 1000}],
    "protocols": {"simple": )" +
         protocol() + R"(, "ll": )" + protocol() + R"(, "ll128": )" + protocol() + "}}";
}

std::string replaced(std::string text, std::string_view old, std::string_view with) {
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), with);
}

TEST(MachineJson, ReadsWhatIsRight) {
  const auto machine = read_machine(machine_text());
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  EXPECT_EQ(machine->max_ranks(), 8);
  EXPECT_EQ(machine->protocols[2].thread_block_gb_s[1], 5);
  EXPECT_EQ(machine->protocols[2].receive_gb_s[0], 8);
  EXPECT_EQ(machine->protocols[0].launch_gap_ns, 3);
  EXPECT_EQ(machine->protocols[1].reduction_overhead_ns, 4);
  EXPECT_EQ(machine->protocols[1].copy_overhead_ns, 5);
  EXPECT_EQ(machine->protocols[1].reduce_gb_s, 7);
  EXPECT_EQ(machine->protocols[2].copy_gb_s, 6);
}

TEST(MachineJson, RefusesWhatIsWrongByName) {
  struct Wrong {
    const char *old, *with, *complaint;
  };
  for (const auto& [old, with, complaint] : {
           Wrong{"\"node_gb_s\": 10", "\"node_gb_s\": 0", "bandwidth inside a node is 0 GB/s"},
           Wrong{"\"node_gb_s\": 10", "\"node_gb_s\": -1", "must be above 0"},
           Wrong{"\"node_gb_s\": 10", "\"node_gb_s\": \"fast\"", "node_gb_s"},
           Wrong{"\"node_gb_s\": 10", "\"node_gbs\": 10", "node_gb"},
           Wrong{"\"node_latency_ns\": 100", "\"node_latency_ns\": 1e300", "latency inside"},
           Wrong{"[0, 0]", "[0]", "each of a node's 2 ranks needs one"},
           Wrong{"[0, 0]", "[0, 1]", "the NIC of a rank is 1"},
           Wrong{"\"nodes\": 4, \"latency_ns\"", "\"nodes\": 3, \"latency_ns\"", "joins only 3"},
           Wrong{"[{\"name\": \"all\", \"nodes\": 4, \"latency_ns\": 1000}]", "[]",
                 "need at least one"},
           Wrong{"[10, 5]", "[10]", "two numbers"},
           Wrong{"\"launch_gap_ns\": 3", "\"launch_gap_ns\": -3", "gap between launches"},
           Wrong{"\"copy_gb_s\": 6", "\"copy_gb_s\": -6", "bandwidth of copies"},
           Wrong{"\"slot_bytes\": 4096", "\"slot_bytes\": 1", "bytes of a slot"},
           Wrong{"\"nodes\": 4,", "\"nodes\": 99999999,", "nodes"},
       }) {
    const auto machine = read_machine(replaced(machine_text(), old, with));
    ASSERT_FALSE(machine.ok()) << with;
    EXPECT_NE(machine.error().message.find(complaint), std::string::npos)
        << machine.error().message;
  }
}

TEST(Machine, RefusesUnitsThatDoNotNest) {
  Machine machine = test::cluster(12, 2, 1);
  machine.levels[1].nodes = 13;
  const Status status = check(machine);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("must be a multiple of the level inside, 2"),
            std::string::npos)
      << status.error().message;
}

TEST(Machine, PlacesRanksNodeAfterNodeOrEvenly) {
  const Machine machine = test::cluster(4, 4, 2);
  EXPECT_EQ(place(machine, 10)->nodes(), 3);
  EXPECT_EQ(place(machine, 10)->ranks_on(2), 2);
  EXPECT_EQ(place(machine, 10, 4)->ranks_on(3), 2);
  for (const auto& [ranks, nodes] :
       {std::pair(17, 0), std::pair(0, 0), std::pair(10, 2), std::pair(10, 5), std::pair(3, 4)})
    EXPECT_FALSE(place(machine, ranks, nodes).ok()) << ranks << " ranks, " << nodes << " nodes";
}

TEST(Machine, FindsTheSmallestUnitThatHoldsBothNodes) {
  const Machine machine = test::cluster(6, 1, 1);
  EXPECT_EQ(level_between(machine, 0, 1), 0);
  EXPECT_EQ(level_between(machine, 1, 2), 1);
  EXPECT_EQ(level_between(machine, 4, 5), 0);
}

TEST(Machine, RanksShareTheNicsOfTheirNode) {
  const Machine machine = test::cluster(2, 4, 2);
  const std::vector<Endpoint> full = endpoints_of(machine, *place(machine, 8));
  EXPECT_EQ(full[0].nic_port, full[1].nic_port);
  EXPECT_NE(full[1].nic_port, full[2].nic_port);
  EXPECT_NE(full[0].nic_port, full[4].nic_port);
  // Two ranks on a node of four places have a NIC each.
  const std::vector<Endpoint> half = endpoints_of(machine, *place(machine, 4, 2));
  EXPECT_NE(half[0].nic_port, half[1].nic_port);
}

}  // namespace
}  // namespace unisono::simulate
