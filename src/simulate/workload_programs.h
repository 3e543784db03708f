// The programs of a workload's calls: which plan serves each, and what one rank does in it.
#pragma once

#include <unisono/result.h>

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "algorithm/algorithm.h"
#include "simulate/choose.h"
#include "simulate/programs.h"
#include "simulate/step_sizes.h"
#include "simulate/workload.h"

namespace unisono::simulate {

// Tasks that run the same program: all calls of one collective on one communicator, say, or all
// messages to one peer with one tag.
struct TaskKind {
  Activity activity = Activity::collective;
  std::size_t communicator = 0;
  std::size_t call = 0;
  bool is_offset = false;
  int peer = 0;
  int tag = 0;
  auto operator<=>(const TaskKind&) const = default;
};

// A collective in one group.
struct GroupCall {
  const algorithm::Entry* entry = nullptr;
  algorithm::Request request;
  plan::Header header;
  StepSizes sizes;
};

class WorkloadPrograms final : public Programs {
 public:
  // All must outlive the result; `placement` is that of all ranks. `choice`: how "automatic"
  // algorithms are chosen.
  WorkloadPrograms(const Machine& machine, const Workload& workload,
                   const topo::Placement& placement, ChoiceOptions choice = {});

  const Workload& workload() const { return workload_; }
  const Machine& machine() const { return machine_; }
  // -1: none.
  int list_of(int rank) const { return list_of_[static_cast<std::size_t>(rank)]; }
  const std::vector<TaskKind>& kinds(std::size_t list) const { return kinds_[list]; }
  // The kind of a task of the list; meaningless for compute.
  std::size_t kind_of(std::size_t list, std::size_t task) const { return kind_of_[list][task]; }

  Result<const GroupCall*> group_call(int rank, const TaskKind& kind);
  int peer(int rank, const TaskKind& kind) const;
  StepSizes message_sizes(std::int64_t bytes) const;

  // Peers are ranks of the workload, keys are by ranks and channel. Says its chunks.
  Result<WiredProgram> program(int rank, const TaskKind& kind);

  // The programs of all kinds of the rank's list, one after another, with other keys for each kind.
  Result<WiredProgram> program(int rank) override;
  // Ranks of different lists are never alike.
  std::uint64_t seed(int rank) const override {
    return static_cast<std::uint64_t>(list_of(rank) + 1);
  }

 private:
  Result<GroupCall> make_group_call(std::size_t call, const std::vector<int>& group);
  Result<const algorithm::Entry*> choose(std::size_t call, const std::vector<int>& nodes,
                                         const CollectiveCall& asked);
  plan::RankProgram message_program(int rank, const TaskKind& kind) const;
  plan::Header message_header() const;

  const Machine& machine_;
  const Workload& workload_;
  const topo::Placement& placement_;
  const ChoiceOptions choice_;
  std::vector<int> list_of_;  // by rank
  std::vector<std::vector<Membership>> members_;
  std::vector<std::vector<TaskKind>> kinds_;       // by list
  std::vector<std::vector<std::size_t>> kind_of_;  // by list, then by task
  // By communicator, group and call.
  std::map<std::tuple<std::size_t, int, std::size_t>, GroupCall> group_calls_;
  // By call, and the nodes of a group's ranks: groups of one shape are simulated once.
  std::map<std::pair<std::size_t, std::vector<int>>, const algorithm::Entry*> chosen_;
};

}  // namespace unisono::simulate
