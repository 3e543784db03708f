#include "simulate/workload_programs.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "plan/builder.h"
#include "simulate/collective.h"
#include "simulate/wiring.h"

namespace unisono::simulate {
namespace {

// How many blocks the larger of input and output holds.
std::int64_t blocks_of(Collective collective, int ranks) {
  switch (collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
      return ranks;
    default:
      return 1;
  }
}

// The ranks' nodes, numbered anew without gaps.
std::vector<int> nodes_of(const topo::Placement& all, const std::vector<int>& group) {
  std::vector<int> nodes;
  for (const int rank : group) nodes.push_back(all.node_of(rank));
  std::vector<int> used = nodes;
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  for (int& node : nodes)
    node = static_cast<int>(std::lower_bound(used.begin(), used.end(), node) - used.begin());
  return nodes;
}

std::uint64_t mixed(std::uint64_t key, std::uint64_t a, std::uint64_t b) {
  for (const std::uint64_t value : {a, b}) {
    key = (key ^ value) * 0x9e3779b97f4a7c15;
    key ^= key >> 29;
  }
  return key;
}

TaskKind kind_of_task(const Task& task) {
  if (task.activity == Activity::collective)
    return {.communicator = task.communicator, .call = task.call};
  return {.activity = task.activity,
          .communicator = task.is_offset ? task.communicator : 0,
          .is_offset = task.is_offset,
          .peer = task.peer,
          .tag = task.tag};
}

}  // namespace

WorkloadPrograms::WorkloadPrograms(const Machine& machine, const Workload& workload,
                                   const topo::Placement& placement, ChoiceOptions choice)
    : machine_(machine),
      workload_(workload),
      placement_(placement),
      choice_(std::move(choice)),
      list_of_(static_cast<std::size_t>(workload.ranks), -1),
      members_(memberships(workload)) {
  for (const TaskList& list : workload.lists) {
    for (const int rank : list.ranks)
      list_of_[static_cast<std::size_t>(rank)] = static_cast<int>(kinds_.size());
    std::vector<TaskKind>& kinds = kinds_.emplace_back();
    std::vector<std::size_t>& kind_of = kind_of_.emplace_back();
    std::map<TaskKind, std::size_t> numbers;
    for (const Task& task : list.tasks) {
      if (task.activity == Activity::compute) {
        kind_of.push_back(0);
        continue;
      }
      const TaskKind kind = kind_of_task(task);
      const auto [found, is_new] = numbers.try_emplace(kind, kinds.size());
      if (is_new) kinds.push_back(kind);
      kind_of.push_back(found->second);
    }
  }
}

Result<const algorithm::Entry*> WorkloadPrograms::choose(std::size_t call,
                                                         const std::vector<int>& nodes,
                                                         const CollectiveCall& asked) {
  const auto found = chosen_.find({call, nodes});
  if (found != chosen_.end()) return found->second;
  UNISONO_ASSIGN(const std::vector<Candidate> candidates, choose_plan(machine_, asked, choice_));
  chosen_.emplace(std::pair(call, nodes), candidates.front().entry);
  return candidates.front().entry;
}

Result<GroupCall> WorkloadPrograms::make_group_call(std::size_t call,
                                                    const std::vector<int>& group) {
  const CollectiveSpec& spec = workload_.calls[call];
  const std::vector<int> nodes = nodes_of(placement_, group);
  GroupCall result;
  result.request.collective = spec.collective;
  UNISONO_ASSIGN(result.request.placement, topo::Placement::from_nodes(nodes));
  result.request.root = spec.root;
  result.request.protocol = spec.protocol;
  result.request.channels = spec.channels;
  const auto ranks = static_cast<int>(group.size());
  const auto element_bytes = static_cast<std::int64_t>(size_bytes(spec.type));
  const std::int64_t count =
      std::max<std::int64_t>(1, spec.bytes / (blocks_of(spec.collective, ranks) * element_bytes));
  if (spec.algorithm == "automatic") {
    UNISONO_ASSIGN(result.entry, choose(call, nodes, {result.request, count, spec.type}));
  } else {
    UNISONO_ASSIGN(result.entry, algorithm::find(spec.collective, spec.algorithm));
  }
  UNISONO_ASSIGN(result.header, algorithm::make_header(*result.entry, result.request));
  UNISONO_TRY(check_size(result.header, count, element_bytes));
  result.sizes = StepSizes(result.header, machine_, count, element_bytes);
  return result;
}

Result<const GroupCall*> WorkloadPrograms::group_call(int rank, const TaskKind& kind) {
  const int group = members_[kind.communicator][static_cast<std::size_t>(rank)].group;
  const auto key = std::tuple(kind.communicator, group, kind.call);
  auto found = group_calls_.find(key);
  if (found == group_calls_.end()) {
    const Communicator& communicator = workload_.communicators[kind.communicator];
    auto made = make_group_call(kind.call, communicator.groups[static_cast<std::size_t>(group)]);
    if (!made.ok())
      return misuse(workload_.name, ": on communicator ", communicator.name, ": ",
                    made.error().message);
    found = group_calls_.emplace(key, std::move(*made)).first;
  }
  return &found->second;
}

int WorkloadPrograms::peer(int rank, const TaskKind& kind) const {
  Task task;
  task.is_offset = kind.is_offset;
  task.communicator = kind.communicator;
  task.peer = kind.peer;
  Membership member;
  if (kind.is_offset) member = members_[kind.communicator][static_cast<std::size_t>(rank)];
  return peer_of(workload_, task, rank, member);
}

plan::Header WorkloadPrograms::message_header() const {
  plan::Header header;
  header.collective = Collective::point_to_point;
  header.ranks = 2;
  header.protocol = workload_.message_protocol;
  header.channels = header.chunks_per_block = workload_.message_channels;
  return header;
}

StepSizes WorkloadPrograms::message_sizes(std::int64_t bytes) const {
  return StepSizes(message_header(), machine_, bytes, 1);
}

plan::RankProgram WorkloadPrograms::message_program(int rank, const TaskKind& kind) const {
  plan::ProgramBuilder builder(rank);
  const int other = peer(rank, kind);
  for (int channel = 0; channel < workload_.message_channels; ++channel) {
    if (kind.activity == Activity::send)
      builder.block(channel, other, -1).send(plan::input(channel));
    else
      builder.block(channel, -1, other).recv(plan::output(channel));
  }
  return builder.take();
}

Result<WiredProgram> WorkloadPrograms::program(int rank, const TaskKind& kind) {
  WiredProgram wired;
  // Messages of one kind may have several sizes: any channel's part may be the smaller one.
  ChunkSizes chunks{.per_block = workload_.message_channels, .equal = 0};
  if (kind.activity == Activity::collective) {
    UNISONO_ASSIGN(const GroupCall* call, group_call(rank, kind));
    chunks = call->sizes.chunks();
    const Membership member = members_[kind.communicator][static_cast<std::size_t>(rank)];
    const std::vector<int>& group =
        workload_.communicators[kind.communicator].groups[static_cast<std::size_t>(member.group)];
    wired.program = call->entry->program(call->request, member.place);
    wired.program.rank = rank;
    for (plan::ThreadBlock& block : wired.program.thread_blocks)
      for (int* other : {&block.send_peer, &block.recv_peer})
        if (*other >= 0) *other = group[static_cast<std::size_t>(*other)];
  } else {
    wired.program = message_program(rank, kind);
  }
  wired.wires = wires_of(machine_, placement_, wired.program);
  wired.chunks.assign(wired.wires.size(), chunks);
  return wired;
}

Result<WiredProgram> WorkloadPrograms::program(int rank) {
  WiredProgram all;
  all.program.rank = rank;
  if (list_of(rank) < 0) return all;
  for (const TaskKind& kind : kinds_[static_cast<std::size_t>(list_of(rank))]) {
    UNISONO_ASSIGN(WiredProgram one, program(rank, kind));
    const bool is_message = kind.activity != Activity::collective;
    for (Wire& wire : one.wires)
      for (std::uint64_t* key : {&wire.send_key, &wire.recv_key})
        *key = mixed(*key, is_message ? 0 : kind.communicator + 1,
                     is_message ? static_cast<std::uint64_t>(kind.tag) : kind.call);
    std::move(one.wires.begin(), one.wires.end(), std::back_inserter(all.wires));
    std::move(one.program.thread_blocks.begin(), one.program.thread_blocks.end(),
              std::back_inserter(all.program.thread_blocks));
    all.chunks.insert(all.chunks.end(), one.chunks.begin(), one.chunks.end());
  }
  return all;
}

}  // namespace unisono::simulate
