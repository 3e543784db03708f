// What is simulated: nodes of ranks, their ports, the network between them, and what a message
// costs on each way. Pure data; clusters/*.yaml and docs/how-to/simulate.md say what the
// numbers mean.
//
// A message of s bytes (on the wire) from a thread block costs, as in LogGOPS:
//   o   send_overhead and recv_overhead, time of the thread block that sends and that receives
//   O   1 / thread_block_bandwidth, time of the thread block for each byte
//   L   latency
//   g   gap, time of the port for each message
//   G   1 / bandwidth of the port, time of the port for each byte
// Ports are full duplex. A rank has one port inside its node, and shares its node's NICs.
#pragma once

#include <unisono/result.h>
#include <unisono/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulate/time.h"
#include "topo/placement.h"

namespace unisono::simulate {

// Inside a node (0), or between nodes (1).
inline constexpr int link_kinds = 2;

// A unit of the network: nodes / `nodes` of them, each with `uplinks` links up. The last level is
// the whole machine and has none.
struct Level {
  std::string name;        // "rack"
  int nodes = 1;           // in one unit; a multiple of the level before
  double latency_ns = 0;   // L of messages whose ends share this unit, and no smaller one
  int uplinks = 0;         // each way; 0: as many as all its nodes' NICs need
  double uplink_gb_s = 0;  // of each, 10^9 bytes a second
  bool adaptive = false;   // uplinks are shared evenly; otherwise a hash picks one for a flow
};

struct ProtocolCosts {
  double launch_ns = 0;  // of a call, before its first step
  // Added for each further thread block of the rank: they begin one after another.
  double launch_gap_ns = 0;
  // By link kind.
  std::array<double, link_kinds> send_overhead_ns{};
  std::array<double, link_kinds> recv_overhead_ns{};
  std::array<double, link_kinds> extra_latency_ns{};
  std::array<double, link_kinds> thread_block_gb_s{};
  // At which a thread block copies a message out of its slot once it is whole; 0: it reads the
  // message while it comes, as flags next to the data allow.
  std::array<double, link_kinds> receive_gb_s{};
  // Beyond its bytes, of a step that reduces, and of one that stores what it sends, here, too.
  double reduction_overhead_ns = 0, copy_overhead_ns = 0;
  // In place of the machine's; 0: those. With `copy_gb_s`, what is stored here and sent on in one
  // step takes its time, too.
  double reduce_gb_s = 0, copy_gb_s = 0;
  double wire_bytes_per_byte = 1;  // flags: 2 for LL, 128/120 for LL128
  std::int64_t slot_bytes = 512 << 10;
};

struct Machine {
  std::string name;
  int nodes = 1;
  int ranks_per_node = 1;

  double node_latency_ns = 0;  // inside a node
  double node_gb_s = 1;        // of a rank's port, each way
  double node_gap_ns = 0;

  int nics_per_node = 1;
  double nic_gb_s = 1;
  double nic_gap_ns = 0;
  // What a NIC that was idle sends at once, as a shaper's token bucket lets it. With loggops only.
  std::int64_t nic_burst_bytes = 0;
  std::vector<int> nic_of_local_rank;  // size ranks_per_node

  std::vector<Level> levels;  // from the smallest; empty only if nodes is 1

  std::array<ProtocolCosts, protocol_count> protocols{};
  double reduce_gb_s = 0;         // of a thread block; 0: no time beyond the copy
  double copy_gb_s = 0;           // local copies; 0: no time
  bool ranks_share_core = false;  // the thread blocks of a rank take turns on one core
  int slots = 8;                  // of a connection
  int tiles = 1;                  // chunks are cut into at least so many, if these stay large

  int max_ranks() const { return nodes * ranks_per_node; }
};

inline constexpr int max_nodes = 1 << 20;
inline constexpr int max_ranks_per_node = 1024;  // of several nodes
inline constexpr int max_machine_ranks = 1 << 20;

// Everything that must hold for a machine to be simulated; misuse that names the value.
Status check(const Machine& machine);

// Ranks 0, 1, ... fill one node after another. Misuse if the machine has fewer places; nodes 0
// means as few as possible, otherwise the ranks are spread over so many, evenly.
Result<topo::Placement> place(const Machine& machine, int ranks, int nodes = 0);

// The index into `levels` of the smallest unit that holds both of two different nodes.
int level_between(const Machine& machine, int node, int other_node);

// A machine of one node whose only costs are these: for tests and for LogGOPS parameters given
// directly.
struct LogGops {
  double latency_ns = 0, overhead_ns = 0, gap_ns = 0;
  double gap_ns_per_byte = 0, overhead_ns_per_byte = 0;
};
Machine log_gops_machine(int ranks, const LogGops& parameters);

}  // namespace unisono::simulate
