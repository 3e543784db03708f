#include "comm/core.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/rank.h"
#include "base/settings.h"
#include "base/try.h"
#include "comm/dump.h"
#include "comm/job/launcher_note.h"
#include "comm/run/calls.h"
#include "comm/run/out_of_memory.h"
#include "transport/fault.h"

namespace unisono {

using comm::Scheduler;

namespace {

// Where ranks outnumber cores, spinning takes the core from the rank that is waited for. A small
// group shares the cores with the other ranks of the host, which a launcher counts.
int spins_of(const comm::Job& job) {
  const auto wanted = static_cast<int>(job.settings().integer(Setting::spin));
  if (wanted >= 0) return wanted;
  const int cores = job.sys_world().processors();
  const auto launched = launcher_integer(LauncherVariable::local_world_size);
  const std::int64_t on_host = launched.ok() ? launched->value_or(0) : 0;
  return std::max<std::int64_t>(job.ranks_on_host(), on_host) <= cores ? 4000 : 0;
}

Result<topo::Placement> placement_of(const comm::Job& job, const std::vector<int>& world_ranks) {
  // A group's nodes are numbered in the order in which its members name them.
  std::vector<int> number_of(static_cast<std::size_t>(job.roster().nodes()), -1);
  std::vector<int> nodes;
  nodes.reserve(world_ranks.size());
  std::vector<int> jobs_nodes;
  for (const int world_rank : world_ranks) {
    const int node = job.roster().node_of(world_rank);
    int& number = number_of[static_cast<std::size_t>(node)];
    if (number < 0) {
      number = static_cast<int>(jobs_nodes.size());
      jobs_nodes.push_back(node);
    }
    nodes.push_back(number);
  }
  if (job.levels().empty()) return topo::Placement::from_nodes(nodes);
  return topo::Placement::near(nodes, job.levels().of(jobs_nodes));
}

// For the launcher, whose ranks are those of the job.
void note_failure(const Communicator::Core& of, Error error, int job_rank, int job_ranks) {
  const auto culprit = Rank::among(error.peer, of.size);
  if (culprit) error.peer = of.world_ranks()[culprit->index()];
  comm::note_culprit(error, job_rank, job_ranks);
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
  core->member_list = group->members();
  core->timeout_ns = job->timeout_ns();
  core->checks_calls = job->settings().boolean(Setting::check_calls);

  UNISONO_ASSIGN(auto placement, placement_of(*job, core->world_ranks()));
  std::vector<int> neighbours;
  const int node = placement.node_of(core->rank);
  for (int i = 0; i < placement.ranks_on(node); ++i)
    neighbours.push_back(placement.rank_at(node, i));
  core->status_page = std::make_unique<comm::StatusPage>(
      job->sys_world(), job->status_page_name(core->id, core->epoch, node), core->rank, neighbours,
      core->size);
  group->show_calls(core->status_page->kept_calls());
  if (job->settings().boolean(Setting::flat)) placement = topo::Placement::single_node(core->size);
  UNISONO_ASSIGN(core->host,
                 comm::HostPath::make(
                     job, {.communicator = core->id, .epoch = core->epoch, .rank = core->rank},
                     core->world_ranks(), std::move(placement)));
  core->scheduler = std::make_unique<Scheduler>(
      Scheduler::Options{
          .rank = core->rank,
          .communicator = core->id,
          .group = core->group_name,
          .spins = spins_of(*job),
          .adapts_spins = job->settings().integer(Setting::spin) < 0,
          .longest_sleep_ns = comm::Backoff::longest_sleep_of(
              job->ranks_on_host() / std::max(job->sys_world().processors(), 1)),
          .record_slots = static_cast<std::size_t>(
              std::max<std::int64_t>(job->settings().integer(Setting::record_slots), 1)),
          .on_failure =
              [of = core.get(), me = job->rank(), ranks = job->size()](const Error& error) {
                if (auto* const service = of->service_made.load(std::memory_order_acquire))
                  service->abort(transport::fault_of(error, of->rank));
                note_failure(*of, error, me, ranks);
                comm::dump_process_to_directory(*of);
              }},
      job->sys_world(), core->host->connections(), *core->status_page, *group);
  if (job->has_signals())
    UNISONO_TRY(core->make_signals(*job, *group));
  else
    UNISONO_TRY(group->barrier(job->bootstrap_timeout_ns()));
  core->status_page->all_have_joined();
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
  if (comm::DevicePath* const known = device())
    if (auto status = known->connections().failure(); !status.ok()) scheduler->fail(status.error());
  if (const comm::WindowService* const service = service_made.load(std::memory_order_acquire))
    if (auto status = service->failure(); !status.ok()) scheduler->fail(status.error());
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
          .ranks = size,
          .world_ranks = world_ranks(),
          .node = job->node_name(),
          .process = process,
          .is_watched = comm::is_watched(*this)};
}

trace::ClockAnchor Communicator::Core::clock() const {
  const sys::World& world = scheduler->world();
  if (world.is_real()) return trace::ClockAnchor::now();
  const std::int64_t now_ns = world.now_ns();
  return {.monotonic_ns = now_ns, .wall_ns = now_ns};
}

Status Communicator::Core::register_plans(std::span<const std::string> texts,
                                          std::uint64_t min_bytes, std::uint64_t max_bytes) {
  UNISONO_TRY(usable());
  std::vector<comm::CallPath*> paths{host.get()};
  if (device() != nullptr) paths.push_back(device());
  std::vector<std::pair<comm::Plans*, comm::Plans::Prepared>> prepared;
  const int slots = job->fifo_options().usable_slots();
  // A rank that cannot takes part in the comparison, so that no other waits for it.
  auto mine = comm::read_registration(texts, rank, size, slots, min_bytes, max_bytes);
  for (comm::CallPath* const path : paths) {
    comm::Plans* const engine = path->plans();
    if (!mine.ok() || !engine->can_run(mine->plan)) continue;
    auto made = engine->prepare(mine->plan);
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
  registered_.push_back(mine->plan);
  const Scheduler::Pause pause(*scheduler);
  for (auto& [engine, plan] : prepared) engine->add(std::move(plan));
  for (comm::CallPath* const path : paths) {
    if (!path->plans()->can_run(mine->plan)) path->plans()->refuse(mine->plan);
    path->forget_prepared();
  }
  return {};
}

// Their first call on a stream finds the device where none was named.
Result<comm::DevicePath*> Communicator::Core::device_for(void* stream) {
  if (comm::DevicePath* const known = device()) return known;
  const std::lock_guard lock(device_mutex_);
  if (comm::DevicePath* const known = device()) return known;
  int ordinal = job->device();
  if (ordinal < 0) {
    auto of_stream = sys::cuda::Device::ordinal_of(static_cast<sys::cuda::StreamHandle*>(stream));
    // Without one, opening it says on all ranks alike what is wrong.
    ordinal = of_stream.ok() ? *of_stream : 0;
  }
  UNISONO_TRY(make_device(ordinal));
  return device();
}

Result<comm::CallPath*> Communicator::Core::path_for(const std::optional<void*>& stream) {
  if (!stream) return host.get();
  UNISONO_ASSIGN(comm::DevicePath* const path, device_for(*stream));
  return path;
}

Status Communicator::Core::make_device(int ordinal) {
  UNISONO_ASSIGN(auto made, comm::DevicePath::make(job, *group, {id, epoch, rank}, ordinal, *host,
                                                   registered_));
  made->connections().watch(signals.get());
  device_path_ = std::move(made);
  scheduler->watch(device_path_->connections());
  device_.store(device_path_.get(), std::memory_order_release);
  return {};
}

}  // namespace unisono
