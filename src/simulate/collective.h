// How long one collective takes on a machine.
#pragma once

#include <unisono/result.h>

#include <string>
#include <vector>

#include "algorithm/algorithm.h"
#include "simulate/executor.h"
#include "simulate/machine.h"

namespace unisono::simulate {

struct CollectiveCall {
  algorithm::Request request;
  std::int64_t count = 0;  // elements of a block: what one rank contributes or receives
  DataType type = DataType::float32;
};

inline constexpr int max_calls = 1 << 20;

struct CollectiveOptions {
  NetworkModel model = NetworkModel::log_gops;
  double noise = 0;
  std::uint64_t seed = 1;
  bool explain = false;
  int calls = 1;  // back to back; 1 to max_calls
  // Ranks that stay in the same state are simulated once. Only where nothing tells them apart: not
  // with flows over shared links, noise or a time-line.
  bool collapse = true;
  std::uint64_t max_events = std::uint64_t{1} << 36;
  Time last_time = INT64_MAX;    // a run that takes longer is cut there; see ExecutorResult::is_cut
  int timeline = -1;             // a descriptor to write to; -1: none
  Progress* progress = nullptr;  // must outlive the simulation
};

// A port of ExecutorResult::ports, and whose it is.
struct ShownPort {
  std::uint32_t port = 0;
  int owner = 0;  // the rank, or the NIC's node
  int nic = -1;   // of the node
};

struct CollectiveResult {
  ExecutorResult run;
  std::vector<ShownPort> ports;  // of the ranks inside their nodes, then the NICs
  int ranks = 0;
  int nodes = 0;
  int simulated_ranks = 0;    // fewer than ranks if they were collapsed
  std::string not_collapsed;  // why not; empty if they were, or if nobody asked
  std::int64_t tiles = 0;
  std::int64_t largest_message_bytes = 0;
  // What the rank's port and the NIC that send most have sent.
  std::int64_t node_port_bytes = 0, nic_bytes = 0;
  double closed_form_us = 0;  // steps α + bytes β of the algorithm's stated cost
};

// What the algorithm's stated cost comes to on this machine, without any simulation: the launch, α
// for each message of the longest chain, β for each byte of the busiest rank.
double closed_form_us(const Machine& machine, const algorithm::Request& request,
                      const algorithm::Cost& cost);

// The entry's plan, as the library runs it. Misuse if the entry cannot serve the request.
Result<CollectiveResult> simulate_collective(const Machine& machine, const algorithm::Entry& entry,
                                             const CollectiveCall& call,
                                             const CollectiveOptions& options);

// Any plan, of all ranks; it need not have been verified.
Result<CollectiveResult> simulate_plan(const Machine& machine, const plan::Plan& plan,
                                       const topo::Placement& placement, std::int64_t count,
                                       DataType type, const CollectiveOptions& options);

}  // namespace unisono::simulate
