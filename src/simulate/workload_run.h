// How long a workload takes on a machine.
#pragma once

#include <unisono/result.h>

#include <string>
#include <vector>

#include "simulate/collective.h"
#include "simulate/workload.h"

namespace unisono::simulate {

struct WorkloadOptions {
  CollectiveOptions run;
  int shown_rank = 0;               // whose tasks are listed
  std::size_t max_tasks = 100'000;  // of them, at most
};

// A task of the shown rank, as it was run.
struct TaskTime {
  std::uint32_t task = 0;  // of its list
  std::int64_t iteration = 0;
  Time began = 0, ended = 0;
};

// Which algorithm served a call; one line for each call of each communicator.
struct ServedCall {
  std::string communicator;
  std::size_t call = 0;
  int ranks = 0;
  std::string algorithm;
};

struct WorkloadResult {
  ExecutorResult run;
  int ranks = 0, nodes = 0;
  int simulated_ranks = 0;
  std::string not_collapsed;     // why not; empty if they were, or if nobody asked
  std::vector<Time> iterations;  // when the last rank had ended each
  int shown_list = -1;           // of the shown rank
  std::vector<TaskTime> tasks;   // of the shown rank, by when they began
  std::vector<ServedCall> served;
};

// Ranks 0, 1, ... of the workload fill one node after another. Misuse if the workload is wrong, an
// algorithm cannot serve, or ranks deadlock, with who waits for whom.
Result<WorkloadResult> simulate_workload(const Machine& machine, const Workload& workload,
                                         const WorkloadOptions& options);

}  // namespace unisono::simulate
