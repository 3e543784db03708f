#include "simulate/workload_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <unordered_map>

#include "base/error.h"
#include "base/try.h"
#include "plan/check.h"
#include "simulate/collapse.h"
#include "simulate/wiring.h"
#include "simulate/workload_programs.h"

namespace unisono::simulate {
namespace {

// A stream has a line of the time-line, and below all streams one for each thread block.
const int block_lines = plan::format_limits().max_thread_blocks;

std::string line_name(const TaskList& list, int line) {
  const auto shown = [&](int stream) {
    const auto number = static_cast<std::size_t>(stream);
    return number < list.streams.size() ? list.streams[number] : str("stream ", stream);
  };
  if (line < max_streams) return shown(line);
  const int below = line - max_streams;
  return str(shown(below / block_lines), ", thread block ", below % block_lines);
}

// Lets every simulated rank go through its list.
class WorkloadDriver final : public Driver {
 public:
  // `collapsed`: nullptr if every rank is simulated.
  WorkloadDriver(WorkloadPrograms& programs, const CollapsedPrograms* collapsed,
                 std::uint32_t endpoints, const WorkloadOptions& options, Timeline* timeline)
      : programs_(programs), collapsed_(collapsed), options_(options), timeline_(timeline) {
    for (std::uint32_t number = 0; number < endpoints; ++number)
      add_rank(collapsed != nullptr ? collapsed->first_rank(number) : static_cast<int>(number));
    shown_ = collapsed != nullptr ? collapsed->class_of(options.shown_rank)
                                  : static_cast<std::uint32_t>(options.shown_rank);
  }

  Status begin(Executor& executor) override;
  Status ended(Executor& executor, const Ended& what) override;
  void report(WorkloadResult& result) const;

 private:
  struct Stream {
    std::vector<std::uint32_t> tasks;  // of the list
    std::size_t next = 0;              // in `tasks`: the first that has not ended
    std::int64_t iteration = 0;
    bool is_busy = false;
  };
  struct RankState {
    int rank = 0;
    std::size_t list = 0;
    std::vector<Stream> streams;
    std::vector<std::uint64_t> calls;                           // made, by communicator
    std::unordered_map<std::uint64_t, std::uint64_t> messages;  // begun, by direction, peer and tag
    std::vector<std::size_t> first_block;  // by kind: where its blocks are among all of the rank's
  };

  void add_rank(int rank);
  Status begin_ready(Executor& executor, std::uint32_t endpoint, Time now, const Path* path);
  Status begin_task(Executor& executor, std::uint32_t endpoint, int stream, Time now,
                    const Path* path);
  bool has_ended(const RankState& rank, std::uint32_t task, std::int64_t iteration) const;
  Result<WiredProgram> program(std::uint32_t endpoint, std::size_t kind);
  Status count_steps();
  Status find_blocks(RankState& rank);
  std::uint64_t message_key(RankState& rank, const Task& task, const TaskKind& kind);

  const Workload& workload() const { return programs_.workload(); }

  WorkloadPrograms& programs_;
  const CollapsedPrograms* collapsed_;
  const WorkloadOptions& options_;
  Timeline* timeline_;
  std::vector<RankState> ranks_;  // by endpoint
  std::uint32_t shown_ = 0;
  std::vector<std::vector<std::size_t>> place_in_stream_;  // by list, then by task
  std::vector<Time> iterations_;
  std::vector<TaskTime> tasks_;
  std::map<const GroupCall*, std::shared_ptr<const Call>> calls_;
  std::map<std::int64_t, std::shared_ptr<const Call>> message_calls_;  // by bytes
  std::map<std::pair<std::size_t, std::size_t>, ServedCall> served_;
};

void WorkloadDriver::add_rank(int rank) {
  RankState& state = ranks_.emplace_back();
  state.rank = rank;
  if (programs_.list_of(rank) < 0) return;
  state.list = static_cast<std::size_t>(programs_.list_of(rank));
  state.calls.resize(workload().communicators.size());
  const TaskList& list = workload().lists[state.list];
  if (place_in_stream_.empty()) place_in_stream_.resize(workload().lists.size());
  std::vector<std::size_t>& places = place_in_stream_[state.list];
  places.resize(list.tasks.size());
  for (std::uint32_t i = 0; i < list.tasks.size(); ++i) {
    const auto stream = static_cast<std::size_t>(list.tasks[i].stream);
    if (state.streams.size() <= stream) state.streams.resize(stream + 1);
    places[i] = state.streams[stream].tasks.size();
    state.streams[stream].tasks.push_back(i);
  }
}

Status WorkloadDriver::begin(Executor& executor) {
  iterations_.assign(static_cast<std::size_t>(workload().iterations), 0);
  if (options_.run.progress != nullptr) UNISONO_TRY(count_steps());
  for (std::uint32_t endpoint = 0; endpoint < ranks_.size(); ++endpoint) {
    if (collapsed_ != nullptr) UNISONO_TRY(find_blocks(ranks_[endpoint]));
    UNISONO_TRY(begin_ready(executor, endpoint, 0, nullptr));
  }
  return {};
}

Status WorkloadDriver::count_steps() {
  std::uint64_t total = 0;
  for (const RankState& rank : ranks_) {
    if (programs_.list_of(rank.rank) < 0) continue;
    const TaskList& list = workload().lists[rank.list];
    std::map<std::size_t, plan::RankProgram> written;  // by kind
    for (std::size_t i = 0; i < list.tasks.size(); ++i) {
      const Task& task = list.tasks[i];
      if (task.activity == Activity::compute) continue;
      const std::size_t number = programs_.kind_of(rank.list, i);
      const TaskKind& kind = programs_.kinds(rank.list)[number];
      if (!written.contains(number)) {
        UNISONO_ASSIGN(WiredProgram one, programs_.program(rank.rank, kind));
        written.emplace(number, std::move(one.program));
      }
      StepSizes sizes = programs_.message_sizes(task.bytes);
      if (task.activity == Activity::collective) {
        UNISONO_ASSIGN(const GroupCall* served, programs_.group_call(rank.rank, kind));
        sizes = served->sizes;
      }
      total += steps_of(written.at(number), sizes);
    }
  }
  options_.run.progress->set_total(total * static_cast<std::uint64_t>(workload().iterations));
  return {};
}

Status WorkloadDriver::find_blocks(RankState& rank) {
  if (programs_.list_of(rank.rank) < 0) return {};
  std::size_t first = 0;
  for (const TaskKind& kind : programs_.kinds(rank.list)) {
    rank.first_block.push_back(first);
    UNISONO_ASSIGN(const WiredProgram one, programs_.program(rank.rank, kind));
    first += one.wires.size();
  }
  return {};
}

bool WorkloadDriver::has_ended(const RankState& rank, std::uint32_t task,
                               std::int64_t iteration) const {
  const Task& asked = workload().lists[rank.list].tasks[task];
  const Stream& stream = rank.streams[static_cast<std::size_t>(asked.stream)];
  return stream.iteration > iteration ||
         (stream.iteration == iteration && stream.next > place_in_stream_[rank.list][task]);
}

Status WorkloadDriver::begin_ready(Executor& executor, std::uint32_t endpoint, Time now,
                                   const Path* path) {
  for (std::size_t number = 0; number < ranks_[endpoint].streams.size(); ++number) {
    const RankState& rank = ranks_[endpoint];
    const Stream& stream = rank.streams[number];
    if (stream.is_busy || stream.tasks.empty() || stream.iteration == workload().iterations)
      continue;
    const Task& task = workload().lists[rank.list].tasks[stream.tasks[stream.next]];
    const bool is_ready =
        std::all_of(task.after.begin(), task.after.end(),
                    [&](std::uint32_t other) { return has_ended(rank, other, stream.iteration); });
    if (is_ready) UNISONO_TRY(begin_task(executor, endpoint, static_cast<int>(number), now, path));
  }
  return {};
}

Status WorkloadDriver::begin_task(Executor& executor, std::uint32_t endpoint, int number, Time now,
                                  const Path* path) {
  RankState& rank = ranks_[endpoint];
  Stream& stream = rank.streams[static_cast<std::size_t>(number)];
  stream.is_busy = true;
  const std::uint32_t index = stream.tasks[stream.next];
  const Task& task = workload().lists[rank.list].tasks[index];
  Start what{.endpoint = endpoint,
             .tag = static_cast<std::uint64_t>(number),
             .at = now,
             .path = path,
             .line = number};
  if (task.activity == Activity::compute) {
    what.duration = from_ns(task.duration_ns);
    what.shown = task.name;
    return executor.start(std::move(what));
  }
  const std::size_t kind_number = programs_.kind_of(rank.list, index);
  const TaskKind& kind = programs_.kinds(rank.list)[kind_number];
  if (task.activity == Activity::collective) {
    UNISONO_ASSIGN(const GroupCall* served, programs_.group_call(rank.rank, kind));
    std::shared_ptr<const Call>& call = calls_[served];
    const std::string& communicator = workload().communicators[task.communicator].name;
    if (!call) {
      call = executor.make_call(served->header.protocol, served->sizes,
                                str(served->header.name, " on ", communicator));
      served_.try_emplace({task.communicator, task.call},
                          ServedCall{communicator, task.call, served->header.ranks,
                                     std::string(served->entry->name)});
    }
    what.call = call;
    what.call_key = (std::uint64_t{task.communicator + 1} << 40) | rank.calls[task.communicator]++;
  } else {
    std::shared_ptr<const Call>& call = message_calls_[task.bytes];
    if (!call)
      call = executor.make_call(workload().message_protocol, programs_.message_sizes(task.bytes),
                                str("a message of ", task.bytes, " bytes"));
    what.call = call;
    what.call_key = message_key(rank, task, kind);
  }
  UNISONO_ASSIGN(what.program, program(endpoint, kind_number));
  what.line = max_streams + number * block_lines;
  return executor.start(std::move(what));
}

// The n-th message with a tag from sender to receiver is the n-th that the receiver takes.
std::uint64_t WorkloadDriver::message_key(RankState& rank, const Task& task, const TaskKind& kind) {
  constexpr std::uint64_t messages = std::uint64_t{1} << 32;
  const auto peer = static_cast<std::uint64_t>(programs_.peer(rank.rank, kind));
  const std::uint64_t direction = task.activity == Activity::send ? 1 : 0;
  const std::uint64_t sent =
      rank.messages[(direction << 62) | (peer << 30) | static_cast<std::uint64_t>(task.tag)]++ %
      messages;
  return (std::uint64_t{1} << 63) | (static_cast<std::uint64_t>(task.tag) << 32) | sent;
}

Result<WiredProgram> WorkloadDriver::program(std::uint32_t endpoint, std::size_t kind) {
  const RankState& rank = ranks_[endpoint];
  UNISONO_ASSIGN(WiredProgram one, programs_.program(rank.rank, programs_.kinds(rank.list)[kind]));
  if (collapsed_ == nullptr) return one;
  const std::vector<Wire>& all = collapsed_->wires(endpoint);
  for (std::size_t i = 0; i < one.wires.size(); ++i) {
    one.wires[i] = all[rank.first_block[kind] + i];
    plan::ThreadBlock& block = one.program.thread_blocks[i];
    for (int* peer : {&block.send_peer, &block.recv_peer})
      if (*peer >= 0) *peer = static_cast<int>(collapsed_->class_of(*peer));
  }
  return one;
}

Status WorkloadDriver::ended(Executor& executor, const Ended& what) {
  RankState& rank = ranks_[what.endpoint];
  Stream& stream = rank.streams[what.tag];
  const std::uint32_t index = stream.tasks[stream.next];
  const Task& task = workload().lists[rank.list].tasks[index];
  if (what.endpoint == shown_ && tasks_.size() < options_.max_tasks)
    tasks_.push_back({index, stream.iteration, what.began, what.at});
  if (timeline_ != nullptr && task.activity != Activity::compute)
    timeline_->bar(
        rank.rank, static_cast<int>(what.tag), task.name, what.began, what.at,
        task.activity == Activity::collective ? workload().calls[task.call].bytes : task.bytes);
  stream.is_busy = false;
  if (++stream.next == stream.tasks.size()) {
    Time& last = iterations_[static_cast<std::size_t>(stream.iteration)];
    last = std::max(last, what.at);
    stream.next = 0;
    ++stream.iteration;
  }
  return begin_ready(executor, what.endpoint, what.at, &what.path);
}

void WorkloadDriver::report(WorkloadResult& result) const {
  result.iterations = iterations_;
  result.tasks = tasks_;
  std::stable_sort(result.tasks.begin(), result.tasks.end(),
                   [](const TaskTime& a, const TaskTime& b) { return a.began < b.began; });
  for (const auto& [key, call] : served_) result.served.push_back(call);
}

std::string why_not_collapse(const CollectiveOptions& options) {
  if (!options.collapse) return "nobody asked for it";
  if (options.model == NetworkModel::flows) return "flows share links between nodes";
  if (options.noise > 0) return "noise tells ranks apart";
  if (options.timeline >= 0) return "a time-line shows every rank";
  return "";
}

}  // namespace

Result<WorkloadResult> simulate_workload(const Machine& machine, const Workload& workload,
                                         const WorkloadOptions& options) {
  UNISONO_TRY(check(workload, machine));
  if (std::isnan(options.run.noise) || options.run.noise < 0 || options.run.noise > 100)
    return misuse("noise is ", options.run.noise, "; it must be 0 to 100");
  if (options.shown_rank < 0 || options.shown_rank >= workload.ranks)
    return misuse("rank ", options.shown_rank, " is to be shown; ranks are 0 to ",
                  workload.ranks - 1);
  UNISONO_ASSIGN(const topo::Placement placement, place(machine, workload.ranks));
  WorkloadPrograms programs(machine, workload, placement, {.progress = options.run.progress});
  WorkloadResult result;
  result.ranks = workload.ranks;
  result.nodes = placement.nodes();
  result.shown_list = programs.list_of(options.shown_rank);
  std::vector<Endpoint> endpoints = endpoints_of(machine, placement);
  std::unique_ptr<CollapsedPrograms> collapsed;
  result.not_collapsed = why_not_collapse(options.run);
  if (result.not_collapsed.empty()) {
    UNISONO_ASSIGN(collapsed, collapse(programs.machine(), endpoints, programs));
    if (collapsed)
      endpoints = collapsed->endpoints();
    else
      result.not_collapsed = "no two ranks do the same";
  }
  result.simulated_ranks = static_cast<int>(endpoints.size());
  std::unique_ptr<Timeline> timeline;
  if (options.run.timeline >= 0) {
    timeline = std::make_unique<Timeline>(
        options.run.timeline,
        TimelineNames{[&](int rank) { return shown_name(placement, rank); },
                      [&](int rank, int line) {
                        return line_name(
                            workload.lists[static_cast<std::size_t>(programs.list_of(rank))], line);
                      }});
  }
  WorkloadDriver driver(programs, collapsed.get(), static_cast<std::uint32_t>(endpoints.size()),
                        options, timeline.get());
  Executor executor(machine, endpoints,
                    {.model = options.run.model,
                     .noise = options.run.noise,
                     .seed = options.run.seed,
                     .explain = options.run.explain,
                     .max_events = options.run.max_events,
                     .timeline = timeline.get(),
                     .progress = options.run.progress});
  UNISONO_ASSIGN(result.run, executor.run(driver));
  driver.report(result);
  if (timeline) UNISONO_TRY(timeline->finish());
  return result;
}

}  // namespace unisono::simulate
