// What happens in one run of chaos: a workload that all ranks share, and what strikes them.
#pragma once

#include <unisono/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "transport/emulated/network.h"

namespace unisono::chaos {

struct Options {
  int ranks = 4;
  int nodes = 2;
  int operations = 20;
  int strikes = 1;
};

// Something that the ranks of a group do together, in the order of the list.
struct Operation {
  enum class Kind : std::uint8_t { call, calls_at_once, messages, gets, windows, split, abort };
  Kind kind = Kind::call;
  int group = 0;  // 0: all ranks; n: what the n-th split made, where this rank has one
  Collective collective = Collective::all_reduce;
  std::string algorithm;  // empty: the library's choice
  std::int64_t count = 0;
  DataType type = DataType::int32;
  ReduceOperation operation = ReduceOperation::sum;
  int root = 0;              // modulo the group's size
  int calls = 1;             // of calls_at_once
  int colors = 2;            // of a split
  std::uint64_t number = 0;  // among all ever made; its data and delays derive from it
};

// What the world does to a process when that comes to a place for the n-th time.
struct Strike {
  enum class Kind : std::uint8_t {
    kill,       // the process ends; the system closes its connections
    lose_host,  // it and its host say nothing more
    cut,        // nothing gets through between it and `other`, for ever
    delay,      // the same, until `duration_ns` have passed
    reset,      // all its connections to `other` for data end
    stop,       // it is stopped for `duration_ns`
  };
  Kind kind = Kind::kill;
  int rank = 0;
  int other = 0;
  std::string place;      // "call/transport.put"
  std::uint64_t nth = 1;  // time that this rank comes there
  std::int64_t duration_ns = 0;
};

struct Scenario {
  std::uint64_t seed = 1;
  Options options;
  std::vector<Operation> operations;
  std::vector<Strike> strikes;
};

// In some jobs ranks put into each other's windows. The draws of the others do not depend on it.
bool has_windows(std::uint64_t seed);
// Whether the ranks of a host load each other's windows, as threads of a process do.
bool hosts_share_memory(std::uint64_t seed);

transport::emulated::NetworkOptions network_of(std::uint64_t seed);

// Without strikes: where to strike is known once it has run.
Scenario make_scenario(std::uint64_t seed, const Options& options);

std::string describe(const Operation& operation);
std::string describe(const Strike& strike);

}  // namespace unisono::chaos
