#include "comm/core.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/settings.h"
#include "base/try.h"
#include "comm/dump.h"
#include "comm/run/calls.h"
#include "comm/run/out_of_memory.h"

namespace unisono {

using comm::Scheduler;

namespace {

// Keeps the links between nodes busy 128 / (128 + s - 1) of the time in a chain of s steps.
constexpr engine::Tiling tiling_between_nodes{.tiles = 128};

// Who comes last in a chain or a tree waits for a first tile from each rank above. Tiles of 4 KiB
// double the time of calls that follow each other (32 KiB on 4 ranks: 5.7 and 11.5 us). Ranks that
// share a core wait for turns, not for tiles: with tiles of 16 KiB 4 ranks on 2 cores took 43 us
// instead of 35 for 128 KiB.
constexpr engine::Tiling tiling_of_chains{
    .tiles = comm::tiling_inside_node.tiles,
    .least_bytes = static_cast<std::size_t>(algorithm::Cost::least_tile_bytes)};

engine::Tiling tiling_of(int nodes, bool is_crowded, const plan::Header& header) {
  if (nodes > 1) return tiling_between_nodes;
  const bool has_chain =
      !is_crowded && header.ranks > 2 &&
      (header.collective == Collective::broadcast || header.collective == Collective::reduce);
  return has_chain ? tiling_of_chains : comm::tiling_inside_node;
}

// Where ranks outnumber cores, spinning takes the core from the rank that is waited for. A group of
// a few shares the cores with the ranks beside it, of which a launcher tells.
int spins_of(const comm::Job& job) {
  const auto wanted = static_cast<int>(settings().integer(Setting::spin));
  if (wanted >= 0) return wanted;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  const auto launched = launcher_integer(LauncherVariable::local_world_size);
  const std::int64_t beside = launched.ok() ? launched->value_or(0) : 0;
  return std::max<std::int64_t>(job.ranks_on_host(), beside) <= cores ? 4000 : 0;
}

Result<topo::Placement> placement_of(const comm::Job& job, const std::vector<int>& world_ranks) {
  std::vector<std::string> names;
  std::vector<int> nodes;
  for (int world_rank : world_ranks) {
    const std::string& node = job.member(world_rank).node;
    const auto found = std::find(names.begin(), names.end(), node);
    nodes.push_back(static_cast<int>(found - names.begin()));
    if (found == names.end()) names.push_back(node);
  }
  return topo::Placement::from_nodes(nodes);
}

// Those of a parent stay, within reach of a leak checker.
void let_go(Communicator::Core* core) {
  static auto* const of_parents = new std::vector<Communicator::Core*>;
  if (core->is_forked())
    of_parents->push_back(core);
  else
    delete core;
}

}  // namespace

Result<std::shared_ptr<Communicator::Core>> Communicator::Core::make(
    std::shared_ptr<comm::Job> job, std::unique_ptr<comm::ControlGroup> group,
    std::string group_name) {
  std::shared_ptr<Core> core(new Core, let_go);
  core->group_name = std::move(group_name);
  core->id = group->communicator();
  core->epoch = group->epoch();
  core->rank = group->rank();
  core->size = group->size();
  core->world_ranks.assign(group->world_ranks().begin(), group->world_ranks().end());
  core->timeout_ns = job->timeout_ns();
  core->checks_calls = settings().boolean(Setting::check_calls);

  UNISONO_ASSIGN(auto placement, placement_of(*job, core->world_ranks));
  std::vector<int> neighbours;
  const int node = placement.node_of(core->rank);
  for (int i = 0; i < placement.ranks_on(node); ++i)
    neighbours.push_back(placement.rank_at(node, i));
  core->board = std::make_unique<comm::Board>(job->board_name(core->id, core->epoch, node),
                                              core->rank, neighbours, core->size);
  if (settings().boolean(Setting::flat)) placement = topo::Placement::single_node(core->size);
  core->connections = std::make_unique<comm::Connections>(job, core->id, core->epoch, core->rank,
                                                          core->world_ranks);
  const int nodes = placement.nodes();
  comm::Selection selection(std::move(placement),
                            comm::host_model(job->fifo_options(), job->host_traits()));
  UNISONO_TRY(selection.read_settings());
  core->make_on_host = [connections = core->connections.get(), job = job.get(),
                        nodes](const comm::Plans::Program& made) {
    return engine::make_execution(made.header, made.program, *connections, job->fifo_options(),
                                  tiling_of(nodes, job->host_traits().crowding > 1, made.header),
                                  made.partners);
  };
  core->plans =
      std::make_unique<comm::Plans>(std::move(selection), core->rank, engine::limits().operations,
                                    job->fifo_options().usable_slots(), core->make_on_host);
  core->point_to_point = std::make_unique<comm::PointToPoint>(
      *core->connections, core->rank, core->size, job->fifo_options(), core->checks_calls);
  core->scheduler = std::make_unique<Scheduler>(
      Scheduler::Options{
          .rank = core->rank,
          .communicator = core->id,
          .group = core->group_name,
          .spins = spins_of(*job),
          .record_slots = static_cast<std::size_t>(
              std::max<std::int64_t>(settings().integer(Setting::record_slots), 1)),
          .on_failure = [of = core.get()] { comm::dump_to_directory(*of, "failure"); }},
      *core->connections, *core->board, *group);
  if (job->has_signals())
    UNISONO_TRY(core->make_signals(*job, *group));
  else
    UNISONO_TRY(group->barrier(settings().duration_ns(Setting::bootstrap_timeout)));
  core->board->all_have_joined();
  core->group = std::move(group);
  core->job = std::move(job);
  if (core->job->device() >= 0) UNISONO_TRY(core->make_device(core->job->device()));
  core->watch = comm::watch_for_dumps(*core);
  return core;
}

Communicator::Core::~Core() {
  watch.reset();
  if (scheduler == nullptr) return;  // it was never completely made
  if (!destroyed.load()) static_cast<void>(drain());
  // The scheduler's thread uses all the rest.
  scheduler.reset();
}

Status Communicator::Core::check_process() const {
  if (!is_forked()) return {};
  return misuse("communicator ", id, " of rank ", rank, " belongs to process ", process,
                ", from which this process, ", getpid(),
                ", was forked. Use the communicator in its own process or create another one here; "
                "start workers that need it by spawn");
}

Status Communicator::Core::alive() {
  UNISONO_TRY(check_process());
  if (destroyed.load(std::memory_order_acquire))
    return misuse("communicator ", id, " was destroyed on rank ", rank);
  if (comm::DeviceConnections* const known = device())
    if (auto status = known->failure(); !status.ok()) scheduler->fail(status.error());
  return scheduler->failure();
}

Status Communicator::Core::usable() {
  UNISONO_TRY(alive());
  if (!suspended.load(std::memory_order_acquire)) return {};
  return misuse("communicator ", id, " is suspended on rank ", rank, "; resume it first");
}

trace::Owner Communicator::Core::owner() const {
  return {.communicator = id,
          .group = group_name,
          .epoch = epoch,
          .rank = rank,
          .world_ranks = world_ranks,
          .node = job->member(world_ranks[static_cast<std::size_t>(rank)]).node,
          .process = process,
          .is_watched = comm::is_watched()};
}

void Communicator::Core::stamp(comm::Task& task, std::int64_t timeout) {
  const std::int64_t now = Scheduler::now_ns();
  if (task.entry.is_message()) {
    task.entry.sequence = next_messages.fetch_add(task.parts.size(), std::memory_order_relaxed);
    std::uint64_t number = task.entry.sequence;
    for (comm::Task::Part& part : task.parts) part.number = number++;
  } else {
    task.entry.sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
  }
  task.entry.scheduled_ns = now;
  task.deadline_ns = now + (timeout > 0 ? timeout : timeout_ns);
}

template <class AnyCall>
inline bool Communicator::Core::is_like(const Ready& ready, const AnyCall& call) {
  return ready.execution != nullptr && ready.count == call.count && ready.root == call.root &&
         ready.entry.type == call.type && ready.entry.operation == call.operation &&
         ready.options.channels == call.options.channels &&
         ready.options.protocol == call.options.protocol &&
         ready.options.timeout == call.options.timeout &&
         ready.options.policy == call.options.policy &&
         ready.options.max_sms == call.options.max_sms &&
         ready.options.leaves_room == call.options.leaves_room &&
         ready.options.tag == call.options.tag && ready.options.algorithm == call.options.algorithm;
}

// The host's plans hold all that is registered.
Result<plan::Header> Communicator::Core::shape_of(const Call& call) {
  if (call.collective == Collective::custom) return plans->custom(call.options.algorithm);
  return comm::shape_of(call, size);
}

Status Communicator::Core::make_ready(const Call& call, Ready& ready) {
  ready.execution = nullptr;
  UNISONO_ASSIGN(const plan::Header shape, shape_of(call));
  UNISONO_TRY(comm::check_call(call, shape, rank));
  comm::Task task;
  UNISONO_TRY(select(call, task));
  const std::uint64_t block = comm::block_bytes(call);
  ready.input_bytes = block * static_cast<std::uint64_t>(plan::input_blocks_of(shape, rank));
  ready.output_bytes = block * static_cast<std::uint64_t>(plan::output_blocks_of(shape, rank));
  ready.count = call.count;
  ready.root = call.root;
  ready.options = call.options;
  ready.in_place = comm::is_in_place(call, rank);
  ready.arguments = task.arguments;
  ready.entry = task.entry;
  ready.timeout_ns = ready.arguments.timeout_ns;
  ready.kind = ++kinds_;
  ready.execution = task.execution;
  return {};
}

inline bool Communicator::Core::take_turn() {
  if (is_forked() || !scheduler->take_turn()) return false;
  if (!destroyed.load(std::memory_order_acquire) && !suspended.load(std::memory_order_acquire))
    return true;
  scheduler->leave_turn();
  return false;
}

bool Communicator::Core::run_at_once(const Call& call, Status& outcome) {
  // Blocks of unequal size are not described by `count`.
  if (call.collective == Collective::all_to_all_v || call.collective == Collective::custom ||
      checks_calls)
    return false;
  const bool is_on_stream = call.options.stream.has_value();
  if (is_on_stream && (device() == nullptr || !check_device(call, *device()).ok())) return false;
  if (!take_turn()) return false;
  Ready& ready = (is_on_stream ? device_ready_ : ready_)[static_cast<std::size_t>(call.collective)];
  const bool same_buffers =
      call.input == ready.arguments.input && call.output == ready.arguments.output;
  bool is_ready = is_like(ready, call);
  if (!is_ready || (!same_buffers && comm::is_in_place(call, rank) != ready.in_place))
    is_ready = comm::or_out_of_memory(rank, [&] { return make_ready(call, ready); }).ok();
  else if (!same_buffers)
    is_ready = comm::buffers_fit(call, ready.input_bytes, ready.output_bytes, ready.in_place);
  if (!is_ready) [[unlikely]] {
    scheduler->leave_turn();
    return false;
  }
  ready.arguments.input = call.input;
  ready.arguments.output = call.output;
  ready.arguments.is_on_stream = call.options.stream.has_value();
  ready.arguments.stream = call.options.stream.value_or(nullptr);
  ready.arguments.pre_multiplier = {.real = call.multiplier, .integer = call.integer_multiplier};
  run_ready(ready, outcome);
  return true;
}

bool Communicator::Core::run_again(const Repeat& call, Status& outcome) {
  const bool is_on_stream = call.options.stream.has_value();
  if (is_on_stream || checks_calls || call.operation == ReduceOperation::pre_multiplied_sum ||
      !take_turn())
    return false;
  Ready& ready = ready_[static_cast<std::size_t>(call.collective)];
  if (call.input != ready.arguments.input || call.output != ready.arguments.output ||
      !is_like(ready, call)) {
    scheduler->leave_turn();
    return false;
  }
  run_ready(ready, outcome);
  return true;
}

void Communicator::Core::run_ready(Ready& ready, Status& outcome) {
  ready.entry.sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
  const Scheduler::Turn turn{*ready.execution, ready.arguments, ready.entry,
                             ready.timeout_ns, ready.kind,      ready.entry.sequence};
  if (!scheduler->run_in_turn(turn, outcome)) outcome = scheduler->wait_after_turn(turn, outcome);
}

bool Communicator::Core::run_at_once(const Message& message, Status& outcome) {
  if (message.tag != 0 || message.count == 0 || message.peer == rank ||
      !comm::check_message(message, rank, size, 1).ok() || message.peer == any_source ||
      !take_turn())
    return false;
  auto found = comm::or_out_of_memory(rank, [&] { return point_to_point->ready(message); });
  if (!found.ok() || !(*found)->try_begin()) {
    scheduler->leave_turn();
    return false;
  }
  comm::PointToPoint::Ready& ready = **found;
  if (ready.kind == 0) ready.kind = ++kinds_;
  const Scheduler::Turn turn{
      *ready.execution, ready.arguments, ready.entry,
      timeout_ns,       ready.kind,      next_messages.fetch_add(1, std::memory_order_relaxed)};
  if (!scheduler->run_in_turn(turn, outcome)) outcome = scheduler->wait_after_turn(turn, outcome);
  ready.end();
  return true;
}

Status Communicator::Core::prepare(const Call& call, comm::Task& task) {
  UNISONO_TRY(usable());
  Status is_right = check_and_select(call, task);
  // A rank that cannot make the call takes part in the comparison, so that no other waits for it.
  if (checks_calls)
    if (Status same = compare_calls(comm::card_of(call, is_right)); is_right.ok())
      is_right = std::move(same);
  if (is_right.ok()) stamp(task, call.options.timeout.count());
  return is_right;
}

bool Communicator::Core::can_choose(const Call& call) {
  comm::Task task;
  return usable().ok() && check_and_select(call, task).ok();
}

Status Communicator::Core::check_and_select(const Call& call, comm::Task& task) {
  UNISONO_ASSIGN(const plan::Header shape, shape_of(call));
  UNISONO_TRY(comm::check_call(call, shape, rank));
  if (call.options.stream) {
    UNISONO_ASSIGN(const comm::DeviceConnections* connected, device_for(*call.options.stream));
    UNISONO_TRY(check_device(call, *connected));
  }
  return select(call, task);
}

Status Communicator::Core::select(const Call& call, comm::Task& task) {
  const bool in_place = comm::is_in_place(call, rank);
  const int root = has_root(call.collective) ? call.root : 0;
  std::uint64_t bytes = comm::call_bytes(call.collective, size, comm::block_bytes(call));
  if (call.collective == Collective::custom) {
    UNISONO_ASSIGN(const plan::Header shape, shape_of(call));
    bytes *= static_cast<std::uint64_t>(std::max(shape.input_blocks, shape.output_blocks));
  }
  UNISONO_ASSIGN(const Means means, means_of(call));
  UNISONO_ASSIGN(const comm::Plans::Chosen chosen,
                 means.plans->choose(call.collective, bytes, root, in_place, means.options));
  task.execution = chosen.execution;
  task.in_order = true;
  task.arguments = comm::arguments_of(call);
  task.arguments.max_sms = means.options.max_sms;
  task.arguments.leaves_room = means.options.leaves_room;
  if (call.options.timeout.count() <= 0) task.arguments.timeout_ns = timeout_ns;
  task.entry.collective = call.collective;
  task.entry.protocol = chosen.choice.protocol;
  task.entry.path = task.execution->path(task.arguments);
  task.entry.type = call.type;
  task.entry.operation = call.operation;
  task.entry.root = root;
  task.entry.bytes = bytes;
  task.entry.tag = call.options.tag;
  task.entry.set_plan(chosen.choice.name());
  return {};
}

Status Communicator::Core::prepare(std::span<const Message> messages, const MessageOptions& options,
                                   comm::Task& task) {
  UNISONO_TRY(usable());
  for (const Message& message : messages)
    UNISONO_TRY(comm::check_message(message, rank, size, messages.size()));
  UNISONO_TRY(comm::check_max_sms(options.max_sms, rank));
  if (options.stream)
    UNISONO_TRY(prepare_on_stream(messages, options, task));
  else
    UNISONO_TRY(point_to_point->prepare(messages, task));
  stamp(task, options.timeout.count());
  return {};
}

Result<std::uint64_t> Communicator::Core::exchange(const void* mine, void* all, std::size_t bytes) {
  Call call;
  call.collective = Collective::all_gather;
  call.input = mine;
  call.output = all;
  call.count = static_cast<std::int64_t>(bytes);
  call.type = DataType::uint8;
  comm::Task task;
  UNISONO_TRY(select(call, task));
  stamp(task, 0);
  UNISONO_TRY(scheduler->run(task));
  return task.entry.sequence;
}

Status Communicator::Core::compare_calls(const comm::CallCard& mine) {
  std::vector<comm::CallCard> all(static_cast<std::size_t>(size));
  UNISONO_ASSIGN(const std::uint64_t sequence, exchange(&mine, all.data(), sizeof mine));
  return comm::compare(all, id, sequence + 1);
}

Status Communicator::Core::refuse_call(std::string_view why) {
  UNISONO_TRY(usable());
  if (!checks_calls) return {};
  comm::CallCard mine;
  mine.refusal.set(why.empty() ? "it gave no reason" : why);
  return compare_calls(mine);
}

Status Communicator::Core::register_plans(std::span<const std::string> texts,
                                          std::uint64_t min_bytes, std::uint64_t max_bytes) {
  UNISONO_TRY(usable());
  std::vector<comm::Plans*> engines{plans.get()};
  if (device() != nullptr) engines.push_back(device_plans_.get());
  std::vector<std::pair<comm::Plans*, comm::Plans::Prepared>> prepared;
  const int slots = job->fifo_options().usable_slots();
  // A rank that cannot takes part in the comparison, so that no other waits for it.
  auto mine = comm::read_registration(texts, rank, size, slots, min_bytes, max_bytes);
  for (comm::Plans* engine : engines)
    for (std::size_t i = 0; mine.ok() && i < mine->plans.size(); ++i) {
      if (!engine->can_run(mine->plans[i])) continue;
      auto made = engine->prepare(mine->plans[i]);
      if (made.ok())
        prepared.emplace_back(engine, std::move(*made));
      else
        mine = made.take_error();
    }
  const comm::RegistrationCard card = mine.ok() ? mine->card : comm::RegistrationCard{};
  std::vector<comm::RegistrationCard> all(static_cast<std::size_t>(size));
  UNISONO_TRY(exchange(&card, all.data(), sizeof card));
  if (!mine.ok()) return mine.take_error();
  UNISONO_TRY(comm::compare(all));
  registered_.insert(registered_.end(), mine->plans.begin(), mine->plans.end());
  const Scheduler::Pause pause(*scheduler);
  for (auto& [engine, plan] : prepared) engine->add(std::move(plan));
  for (comm::Plans* engine : engines)
    for (const comm::Registered& plan : mine->plans)
      if (!engine->can_run(plan)) engine->refuse(plan);
  for (auto* of_engine : {&ready_, &device_ready_})
    for (Ready& ready : *of_engine) ready.execution = nullptr;
  return {};
}

std::size_t Communicator::Core::plans_bytes() {
  std::size_t bytes = plans->memory_bytes();
  for (comm::Plans* const of_device : {device_plans_.get(), copy_plans_.get()})
    if (of_device != nullptr) bytes += of_device->memory_bytes();
  return bytes;
}

}  // namespace unisono
