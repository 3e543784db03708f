#include "simulate/goal_export.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/try.h"
#include "plan/check.h"
#include "plan/walk.h"
#include "simulate/workload_programs.h"

namespace unisono::simulate {
namespace {

constexpr std::int64_t max_operations = std::int64_t{1} << 28;
constexpr int cpus = 256;

// Writes one rank's operations.
class RankWriter {
 public:
  explicit RankWriter(const Machine& machine) : machine_(machine) {}

  // All thread blocks of a program, after what is in `after`; the operations that end it are
  // returned. Messages of a connection have the tags first_tag + channel + n * channels.
  Result<std::vector<std::uint32_t>> add(const plan::RankProgram& program, const StepSizes& sizes,
                                         int channels, std::uint64_t first_tag, int first_cpu,
                                         const std::vector<std::uint32_t>& after);
  std::uint32_t add_calc(double ns, int cpu, const std::vector<std::uint32_t>& after);
  // Refuses what may make more operations than a rank can have, before it takes the memory.
  Status check_room(std::int64_t steps, std::int64_t times) const;
  Result<goal::Rank> take(int rank) {
    return goal::Rank::make(std::move(operations_), requirements_, str("rank ", rank));
  }

 private:
  using Last = std::optional<std::uint32_t>;
  // By tile and step of one thread block: the operation that ends it; none if nothing came yet.
  using Ends = std::vector<Last>;

  struct Block {
    const plan::ThreadBlock* block;
    std::uint64_t sent = 0, received = 0;  // messages
    int barriers = 0;
    int cpu = 0;
    std::int64_t steps = 0;  // of a tile
    Ends ends;
    Last last;
  };
  Status add_step(Block& block, const plan::Step& step, std::int64_t bytes, int channels,
                  std::uint64_t first_tag);
  void add_in_order(Block& block, goal::Operation operation);
  void join_barrier(Block& block);
  double work_ns(const plan::Step& step, std::int64_t bytes) const;

  const Machine& machine_;
  std::vector<goal::Operation> operations_;
  std::vector<goal::Requirement> requirements_;
  std::vector<std::uint32_t> barriers_;  // of the current program
  const std::vector<std::uint32_t>* after_ = nullptr;
};

Status RankWriter::check_room(std::int64_t steps, std::int64_t times) const {
  // A step receives, works and sends.
  constexpr double most_of_a_step = 3;
  const double more = most_of_a_step * static_cast<double>(steps) * static_cast<double>(times);
  if (static_cast<double>(operations_.size()) + more > static_cast<double>(max_operations))
    return misuse("a rank's schedule may have more than ", max_operations,
                  " operations; use larger slots or fewer tiles");
  return {};
}

std::uint32_t RankWriter::add_calc(double ns, int cpu, const std::vector<std::uint32_t>& after) {
  const auto number = static_cast<std::uint32_t>(operations_.size());
  operations_.push_back({.size = static_cast<std::uint64_t>(std::llround(ns)),
                         .kind = goal::Kind::calc,
                         .cpu = static_cast<std::uint8_t>(cpu % cpus)});
  for (const std::uint32_t from : after) requirements_.push_back({from, number});
  return number;
}

void RankWriter::add_in_order(Block& block, goal::Operation operation) {
  operation.cpu = static_cast<std::uint8_t>(block.cpu % cpus);
  const auto number = static_cast<std::uint32_t>(operations_.size());
  operations_.push_back(operation);
  if (block.last)
    requirements_.push_back({*block.last, number});
  else
    for (const std::uint32_t from : *after_) requirements_.push_back({from, number});
  block.last = number;
}

void RankWriter::join_barrier(Block& block) {
  const auto number = static_cast<std::size_t>(block.barriers++);
  if (number == barriers_.size()) barriers_.push_back(add_calc(0, block.cpu, *after_));
  if (block.last) requirements_.push_back({*block.last, barriers_[number]});
  block.last = barriers_[number];
}

double RankWriter::work_ns(const plan::Step& step, std::int64_t bytes) const {
  using plan::Operation;
  double gb_s = 0;
  if (plan::reduces(step.operation)) gb_s = machine_.reduce_gb_s;
  if (step.operation == Operation::copy || step.operation == Operation::copy_send)
    gb_s = machine_.copy_gb_s;
  return gb_s > 0 ? static_cast<double>(bytes) / gb_s : 0;
}

Status RankWriter::add_step(Block& block, const plan::Step& step, std::int64_t bytes, int channels,
                            std::uint64_t first_tag) {
  if (plan::is_one_sided(step.operation))
    return misuse("GOAL cannot express one-sided operations; the plan has a step '",
                  plan::name(step.operation), "'");
  if (step.operation == plan::Operation::barrier) {
    join_barrier(block);
    return {};
  }
  if (bytes == 0) return {};
  const auto tag = [&](std::uint64_t message) {
    const std::uint64_t number = first_tag + static_cast<std::uint64_t>(block.block->channel) +
                                 message * static_cast<std::uint64_t>(channels);
    return static_cast<std::uint32_t>(number % goal::any);
  };
  const auto size = static_cast<std::uint64_t>(bytes);
  if (plan::receives(step.operation))
    add_in_order(block, {.size = size,
                         .peer = static_cast<std::uint32_t>(block.block->recv_peer),
                         .tag = tag(block.received++),
                         .kind = goal::Kind::recv});
  if (const double ns = work_ns(step, bytes); ns >= 0.5)
    add_in_order(block, {.size = static_cast<std::uint64_t>(std::llround(ns))});
  if (plan::sends(step.operation))
    add_in_order(block, {.size = size,
                         .peer = static_cast<std::uint32_t>(block.block->send_peer),
                         .tag = tag(block.sent++),
                         .kind = goal::Kind::send});
  return {};
}

Result<std::vector<std::uint32_t>> RankWriter::add(const plan::RankProgram& program,
                                                   const StepSizes& sizes, int channels,
                                                   std::uint64_t first_tag, int first_cpu,
                                                   const std::vector<std::uint32_t>& after) {
  struct Waiting {
    std::size_t block;  // of the dependency
    std::int64_t tile, step;
    std::uint32_t first;  // operation of the step that waits
  };
  std::int64_t steps = 0;
  for (const plan::ThreadBlock& block : program.thread_blocks)
    steps += plan::unrolled_steps(block.body);
  UNISONO_TRY(check_room(steps, sizes.tiles()));
  after_ = &after;
  barriers_.clear();
  std::vector<Block> blocks;
  std::vector<Waiting> waiting;
  for (const plan::ThreadBlock& one : program.thread_blocks) {
    Block& block = blocks.emplace_back(Block{.block = &one});
    block.cpu = first_cpu + static_cast<int>(blocks.size()) - 1;
    block.steps = plan::unrolled_steps(one.body);
    for (std::int64_t tile = 0; tile < sizes.tiles(); ++tile) {
      for (plan::StepCursor cursor(one.body); cursor.step() != nullptr; cursor.advance()) {
        const plan::Step& step = *cursor.step();
        const auto first = static_cast<std::uint32_t>(operations_.size());
        UNISONO_TRY(
            add_step(block, step, sizes.bytes(step, cursor.loops(), tile), channels, first_tag));
        block.ends.push_back(block.last);
        if (operations_.size() == first) continue;
        for (const plan::Dependency& dependency : step.after)
          waiting.push_back({static_cast<std::size_t>(dependency.thread_block), tile,
                             dependency.steps.at(cursor.loops()), first});
      }
    }
  }
  for (const Waiting& one : waiting) {
    const Block& block = blocks[one.block];
    if (one.step == 0) continue;
    const auto end = static_cast<std::size_t>(one.tile * block.steps + one.step - 1);
    if (const Last from = block.ends[end]) requirements_.push_back({*from, one.first});
  }
  std::vector<std::uint32_t> ends;
  for (const Block& block : blocks)
    if (block.last) ends.push_back(*block.last);
  if (ends.empty()) ends = after;
  return ends;
}

// How far apart the tags of two calls must be: more than a connection's messages.
std::uint64_t tags_of(const plan::RankProgram& program, const StepSizes& sizes, int channels) {
  std::int64_t most = 1;
  for (const plan::ThreadBlock& block : program.thread_blocks)
    most = std::max(most, plan::unrolled_steps(block.body));
  return static_cast<std::uint64_t>(most * std::max<std::int64_t>(sizes.tiles(), 1)) *
         static_cast<std::uint64_t>(channels);
}

// Writes the lists of a workload's ranks.
class WorkloadWriter {
 public:
  WorkloadWriter(const Machine& machine, const Workload& workload, const topo::Placement& placement)
      : machine_(machine), workload_(workload), programs_(machine, workload, placement) {}

  Result<goal::Schedule> write();

 private:
  struct State {
    std::vector<std::vector<std::uint32_t>> stream_ends;  // what ends each stream's last task
    std::vector<std::vector<std::uint32_t>> task_ends;    // of this iteration, by task
    std::vector<std::uint64_t> calls;                     // made, by communicator
    std::map<std::tuple<Activity, int, int>, std::uint64_t> messages;
  };
  Status count_tags();
  Result<goal::Rank> write_rank(int rank);
  Status add_task(RankWriter& writer, State& state, int rank, std::size_t list,
                  std::uint32_t number);
  static int channels_of(const plan::Header& header) { return std::max(header.channels, 1); }

  const Machine& machine_;
  const Workload& workload_;
  WorkloadPrograms programs_;
  std::uint64_t tags_ = 1;                     // of a call, at most
  std::map<int, std::uint64_t> message_tags_;  // numbers of the tags that messages have
};

Status WorkloadWriter::count_tags() {
  for (int rank = 0; rank < workload_.ranks; ++rank) {
    if (programs_.list_of(rank) < 0) continue;
    for (const TaskKind& kind :
         programs_.kinds(static_cast<std::size_t>(programs_.list_of(rank)))) {
      if (kind.activity != Activity::collective) continue;
      UNISONO_ASSIGN(const GroupCall* call, programs_.group_call(rank, kind));
      UNISONO_ASSIGN(const WiredProgram wired, programs_.program(rank, kind));
      tags_ = std::max(tags_, tags_of(wired.program, call->sizes, channels_of(call->header)));
    }
  }
  for (const TaskList& list : workload_.lists) {
    for (const Task& task : list.tasks) {
      if (task.activity != Activity::send && task.activity != Activity::recv) continue;
      message_tags_.try_emplace(task.tag, message_tags_.size());
      const std::int64_t tiles = programs_.message_sizes(task.bytes).tiles();
      tags_ = std::max(tags_, static_cast<std::uint64_t>(tiles * workload_.message_channels));
    }
  }
  return {};
}

Status WorkloadWriter::add_task(RankWriter& writer, State& state, int rank, std::size_t list,
                                std::uint32_t number) {
  const Task& task = workload_.lists[list].tasks[number];
  std::vector<std::uint32_t> after = state.stream_ends[static_cast<std::size_t>(task.stream)];
  for (const std::uint32_t other : task.after)
    after.insert(after.end(), state.task_ends[other].begin(), state.task_ends[other].end());
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  std::vector<std::uint32_t>& ends = state.task_ends[number];
  const auto streams = static_cast<int>(state.stream_ends.size());
  if (task.activity == Activity::compute) {
    ends = {writer.add_calc(task.duration_ns, task.stream, after)};
  } else {
    const TaskKind& kind = programs_.kinds(list)[programs_.kind_of(list, number)];
    UNISONO_ASSIGN(const WiredProgram wired, programs_.program(rank, kind));
    // Calls of different communicators, and messages, count apart: each has every n-th call's tags.
    const std::uint64_t kinds = workload_.communicators.size() + 1;
    if (task.activity == Activity::collective) {
      UNISONO_ASSIGN(const GroupCall* call, programs_.group_call(rank, kind));
      const std::uint64_t made = state.calls[task.communicator]++ * kinds + task.communicator;
      UNISONO_ASSIGN(ends, writer.add(wired.program, call->sizes, channels_of(call->header),
                                      made * tags_, streams, after));
    } else {
      const int peer = programs_.peer(rank, kind);
      const std::uint64_t before = state.messages[{task.activity, peer, task.tag}]++;
      const std::uint64_t made =
          (before * message_tags_.size() + message_tags_.at(task.tag)) * kinds + kinds - 1;
      UNISONO_ASSIGN(ends, writer.add(wired.program, programs_.message_sizes(task.bytes),
                                      workload_.message_channels, made * tags_, streams, after));
    }
  }
  state.stream_ends[static_cast<std::size_t>(task.stream)] = ends;
  return {};
}

Result<goal::Rank> WorkloadWriter::write_rank(int rank) {
  RankWriter writer(machine_);
  if (programs_.list_of(rank) < 0) return writer.take(rank);
  const auto list = static_cast<std::size_t>(programs_.list_of(rank));
  const std::vector<Task>& tasks = workload_.lists[list].tasks;
  UNISONO_TRY(writer.check_room(static_cast<std::int64_t>(tasks.size()), workload_.iterations));
  State state;
  state.calls.resize(workload_.communicators.size());
  for (const Task& task : tasks)
    if (state.stream_ends.size() <= static_cast<std::size_t>(task.stream))
      state.stream_ends.resize(static_cast<std::size_t>(task.stream) + 1);
  for (std::int64_t iteration = 0; iteration < workload_.iterations; ++iteration) {
    state.task_ends.assign(tasks.size(), {});
    for (std::uint32_t number = 0; number < tasks.size(); ++number)
      UNISONO_TRY(add_task(writer, state, rank, list, number));
  }
  return writer.take(rank);
}

Result<goal::Schedule> WorkloadWriter::write() {
  UNISONO_TRY(count_tags());
  goal::Schedule schedule;
  for (int rank = 0; rank < workload_.ranks; ++rank) {
    UNISONO_ASSIGN(goal::Rank made, write_rank(rank));
    schedule.ranks.push_back(std::move(made));
  }
  return schedule;
}

}  // namespace

Result<goal::Schedule> goal_of_collective(const Machine& machine, const algorithm::Entry& entry,
                                          const CollectiveCall& call) {
  UNISONO_ASSIGN(const plan::Header header, algorithm::make_header(entry, call.request));
  const auto element_bytes = static_cast<std::int64_t>(size_bytes(call.type));
  UNISONO_TRY(check_size(header, call.count, element_bytes));
  const StepSizes sizes(header, machine, call.count, element_bytes);
  goal::Schedule schedule;
  for (int rank = 0; rank < header.ranks; ++rank) {
    RankWriter writer(machine);
    UNISONO_TRY(writer.add(entry.program(call.request, rank), sizes, header.channels, 0, 0, {}));
    UNISONO_ASSIGN(goal::Rank made, writer.take(rank));
    schedule.ranks.push_back(std::move(made));
  }
  return schedule;
}

Result<goal::Schedule> goal_of_plan(const Machine& machine, const plan::Plan& plan,
                                    std::int64_t count, DataType type) {
  UNISONO_TRY(plan::check(plan, plan::format_limits()));
  const auto element_bytes = static_cast<std::int64_t>(size_bytes(type));
  UNISONO_TRY(check_size(plan.header, count, element_bytes));
  const StepSizes sizes(plan.header, machine, count, element_bytes);
  goal::Schedule schedule;
  for (int rank = 0; rank < plan.header.ranks; ++rank) {
    RankWriter writer(machine);
    UNISONO_TRY(writer.add(plan.programs[static_cast<std::size_t>(rank)], sizes,
                           plan.header.channels, 0, 0, {}));
    UNISONO_ASSIGN(goal::Rank made, writer.take(rank));
    schedule.ranks.push_back(std::move(made));
  }
  return schedule;
}

Result<goal::Schedule> goal_of_workload(const Machine& machine, const Workload& workload) {
  UNISONO_TRY(check(workload, machine));
  UNISONO_ASSIGN(const topo::Placement placement, place(machine, workload.ranks));
  return WorkloadWriter(machine, workload, placement).write();
}

}  // namespace unisono::simulate
