// A workload: what every rank of an application computes and communicates, as lists of tasks.
//
// Ranks that do the same share one list (one program, many data). A list's tasks stand on streams:
// those of one stream follow each other, a task may also wait for earlier ones of other streams.
// Collectives are called on communicators; a rank's calls on one are matched in their order, as in
// MPI and NCCL. Messages between two ranks match by tag and order.
#pragma once

#include <unisono/result.h>
#include <unisono/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "simulate/machine.h"

namespace unisono::simulate {

// One name, disjoint groups of ranks: the tensor-parallel groups of a job, say. A group's order is
// that of its communicator's ranks.
struct Communicator {
  std::string name;
  std::vector<std::vector<int>> groups;
};

struct CollectiveSpec {
  Collective collective = Collective::all_reduce;
  std::string algorithm;  // "automatic": the one that is fastest by itself, simulated
  Protocol protocol = Protocol::simple;
  int channels = 1;
  std::int64_t bytes = 0;  // the larger of input and output; at least one element a block is taken
  DataType type = DataType::float32;
  int root = 0;  // in the group
  bool operator==(const CollectiveSpec&) const = default;
};

enum class Activity : std::uint8_t { compute, collective, send, recv };

struct Task {
  Activity activity = Activity::compute;
  std::string name{};
  int stream = 0;
  double duration_ns = 0;        // compute
  std::size_t communicator = 0;  // collective; send and recv with an offset
  std::size_t call = 0;          // collective: into Workload::calls
  // send and recv: a rank, or an offset to this rank's place in its group, modulo its size.
  bool is_offset = false;
  int peer = 0;
  int tag = 0;
  std::int64_t bytes = 0;
  std::vector<std::uint32_t> after{};  // earlier tasks of the list
};

struct TaskList {
  std::vector<int> ranks;
  std::vector<Task> tasks;
  std::vector<std::string> streams{};  // names in time-lines, as far as there are any
};

struct Workload {
  std::string name;
  int ranks = 0;
  std::int64_t iterations = 1;  // how often each list is gone through
  std::vector<Communicator> communicators;
  std::vector<CollectiveSpec> calls;
  std::vector<TaskList> lists;  // a rank stands in one at most; in none: it does nothing
  // For messages between two ranks.
  Protocol message_protocol = Protocol::simple;
  int message_channels = 1;
};

inline constexpr int max_streams = 4096;
inline constexpr int max_tag = (1 << 30) - 1;
inline constexpr std::int64_t max_task_bytes = std::int64_t{1} << 46;

// Everything that can be told without running: that ranks exist and stand in one list and one group
// at most, that what a task waits for comes before it, and that all ranks of a group make the same
// calls in the same order. Misuse that names list, task and what would be right.
Status check(const Workload& workload, const Machine& machine);

// Which group of a communicator a rank is in, and its place there.
struct Membership {
  int group = -1;  // none
  int place = 0;
};
// By communicator, then by rank.
std::vector<std::vector<Membership>> memberships(const Workload& workload);

// The rank that a send or recv of `rank` names.
int peer_of(const Workload& workload, const Task& task, int rank, const Membership& member);

}  // namespace unisono::simulate
