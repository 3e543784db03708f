// Why a call takes the plan that it takes: what Communicator::explain returns.
#pragma once

#include <unisono/call_options.h>
#include <unisono/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace unisono {

// The members mean what those of Call mean.
struct ExplainOptions {
  std::optional<DataType> type;  // nothing: any
  ReduceOperation operation = ReduceOperation::sum;
  bool in_place = false;
  CallOptions options = {};
};

// The messages of a plan that go equally far in the network.
struct PlanDistance {
  std::string where;  // "inside a node", "inside a rack", "between racks", "between zones"
  std::int64_t messages = 0;
  double bytes = 0;
  double longer_us = 0;  // what one takes longer than inside a unit of the nearest level
};

// A plan that could serve the call, and what the cost model says of it.
struct PlanCandidate {
  std::string algorithm;
  Protocol protocol = Protocol::simple;
  int channels = 1;
  double time_us = 0;
  double longer_us = 0;  // of it, because messages leave units of the levels
  // Messages on the longest chain, and those of them between nodes.
  std::int64_t steps = 0;
  std::int64_t steps_inter_node = 0;
  // For the rank that sends most.
  double bytes_sent = 0;
  double bytes_sent_inter_node = 0;
};

struct Explanation {
  Collective collective = Collective::all_reduce;
  std::uint64_t bytes = 0;  // the larger of a rank's input and output
  int ranks = 1;
  int nodes = 1;
  // What the call takes; a registered program's name where one serves it.
  std::string algorithm;
  Protocol protocol = Protocol::simple;
  int channels = 1;
  // Which kernel carries it, "host" for the host engine, or "copy_engine"; its thread blocks, 0
  // without a kernel; what holds that which is on its way to a peer, and bytes of data in each.
  std::string path;
  int thread_blocks = 0;
  int slots = 0;
  std::uint64_t chunk_bytes = 0;
  // Who decided, "cost model" or a file of rows, and the sizes for which it did. UINT64_MAX: all
  // larger ones.
  std::string origin;
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = UINT64_MAX;
  // Why that path, or what holds for all calls of the engine; empty where there is nothing to say.
  std::string note;
  std::vector<PlanCandidate> candidates;  // the fastest first
  // Where levels are known: "4 racks (+12 us), 2 zones (+28 us)", and the messages of the chosen
  // plan, the nearest first. No distances for a registered program, and for more than 512 ranks.
  std::string levels;
  std::vector<PlanDistance> distances;

  // All of it for a person, as a table of at most 80 columns.
  std::string text() const;
};

}  // namespace unisono
