#include "comm/device/device_path.h"

#include <algorithm>

#include "base/call_options.h"
#include "base/error.h"
#include "base/try.h"
#include "comm/run/calls.h"
#include "engine/gpu/copies.h"
#include "engine/gpu/copy_program.h"
#include "engine/gpu/lower.h"
#include "engine/gpu/messages.h"

namespace unisono::comm {

Result<std::unique_ptr<DevicePath>> DevicePath::make(const std::shared_ptr<Job>& job,
                                                     ControlGroup& group,
                                                     DeviceConnections::Identity identity,
                                                     int ordinal, HostPath& host,
                                                     std::span<const Registered> registered) {
  UNISONO_ASSIGN(auto connections,
                 DeviceConnections::make(job, group, identity, ordinal, host.plans()->placement()));
  std::unique_ptr<DevicePath> path(
      new DevicePath(job, host, identity.rank, group.size(), std::move(connections)));
  UNISONO_TRY(path->make_plans(registered));
  return path;
}

std::optional<algorithm::RankPhases> DevicePath::phases_of(
    const algorithm::Entry& entry, const algorithm::Request& request) const {
  const auto runs = [this](const plan::Header& header, const plan::RankProgram& program) {
    return engine::gpu::lower_for(connections_->engine().options(), connections_->thread_blocks(),
                                  header, program)
        .ok();
  };
  auto phases = algorithm::phases_of(entry, request, rank_, runs);
  if (!phases) return std::nullopt;
  // Ranks of one call may be in place and out of place: all go one way, on as many thread blocks.
  algorithm::Request elsewhere = request;
  elsewhere.in_place = !request.in_place;
  const auto others = algorithm::phases_of(entry, elsewhere, rank_, runs);
  if (!others) return std::nullopt;
  phases->thread_blocks = std::max(phases->thread_blocks, others->thread_blocks);
  return phases;
}

Result<std::unique_ptr<Plans>> DevicePath::staged_plans(bool is_mixed) {
  BlocksInside blocks_inside;
  if (is_mixed)
    blocks_inside = [this](const algorithm::Entry& entry, const algorithm::Request& request) {
      const auto phases = phases_of(entry, request);
      return phases ? phases->thread_blocks : 0;
    };
  UNISONO_ASSIGN(Selection selection,
                 host_.make_selection(host_.plans()->placement(),
                                      staged_model(host_.model(), std::move(blocks_inside),
                                                   connections_->engine().why_no_ll128())));
  const auto make =
      [this, is_mixed](const Plans::Program& made) -> Result<std::unique_ptr<engine::Execution>> {
    if (is_mixed && made.entry != nullptr)
      if (const auto phases = phases_of(*made.entry, *made.request))
        return staging_->mix(made.header, phases->mine, host_);
    UNISONO_ASSIGN(auto on_host, host_.make_execution(made, host_.connections()));
    return staging_->stage(made.header, rank_, made.in_place, std::move(on_host));
  };
  return std::make_unique<Plans>(std::move(selection), is_mixed ? Place::mixed : Place::staged,
                                 rank_, engine::limits().operations, host_.usable_slots(), make);
}

Result<std::unique_ptr<Plans>> DevicePath::plans_of_kernels() {
  const engine::gpu::Engine& engine = connections_->engine();
  Selection selection(topo::Placement::single_node(ranks_),
                      device_model(engine.options(), connections_->thread_blocks(), engine.paths(),
                                   engine.why_no_ll128()));
  UNISONO_TRY(selection.read_settings(job_->settings()));
  const auto make = [&resources = *connections_](const Plans::Program& made) {
    return engine::gpu::make_execution(made.header, made.program, made.exchange(), resources,
                                       made.in_place);
  };
  return std::make_unique<Plans>(std::move(selection), Place::device, rank_,
                                 engine::gpu::limits().operations, engine.options().slots, make);
}

Result<std::unique_ptr<Plans>> DevicePath::plans_of_rings() {
  const engine::gpu::Engine& engine = connections_->engine();
  UNISONO_ASSIGN(Selection selection,
                 host_.make_selection(
                     host_.plans()->placement(),
                     ring_model(engine.options(), connections_->thread_blocks(), engine.paths())));
  const auto make = [&resources = *connections_](const Plans::Program& made) {
    plan::Header header = made.header;
    header.protocol = Protocol::simple;
    return engine::gpu::make_execution(header, made.program, nullptr, resources, made.in_place);
  };
  return std::make_unique<Plans>(std::move(selection), Place::device, rank_,
                                 engine::gpu::limits().operations, engine.options().slots, make);
}

std::unique_ptr<Plans> DevicePath::plans_of_copy_engines() {
  const auto& copies = connections_->engine().options().copies;
  const auto make = [&resources = *connections_](const Plans::Program& made) {
    return engine::gpu::make_copies(made.header, made.program, made.exchange().get(), resources);
  };
  return std::make_unique<Plans>(
      Selection(topo::Placement::single_node(ranks_), copy_model(copies)), Place::copy_engines,
      rank_, engine::gpu::copy_limits().operations, copies.slots, make);
}

Status DevicePath::make_plans(std::span<const Registered> registered) {
  if (connections_->is_staged()) staging_ = std::make_unique<Staging>(*connections_);
  UNISONO_ASSIGN(auto made, connections_->has_rings() ? plans_of_rings()
                            : staging_                ? staged_plans(connections_->is_mixed())
                                                      : plans_of_kernels());
  for (const Registered& plan : registered) {
    if (!made->can_run(plan)) {
      made->refuse(plan);
      continue;
    }
    UNISONO_ASSIGN(auto prepared, made->prepare(plan));
    made->add(std::move(prepared));
  }
  plans_ = std::move(made);
  if (!staging_) {
    no_sms_plans_ = plans_of_copy_engines();
  } else if (connections_->is_mixed() || connections_->has_rings()) {
    UNISONO_ASSIGN(no_sms_plans_, staged_plans(/*is_mixed=*/false));
  }
  return {};
}

void DevicePath::settle(CallOptions& options) const {
  fill_in(options, job_->call_defaults());
  options.limit_sms(connections_->most_sms());
}

Result<Plans*> DevicePath::plans_for(Collective collective, CallOptions& options) const {
  settle(options);
  if (connections_->is_staged() && !connections_->is_mixed() && !connections_->has_rings())
    options.max_sms = 0;  // it takes none
  if (exceeds_device(collective)) {
    options.max_sms = 0;
    return no_sms_plans_.get();
  }
  if (options.policy != Policy::zero_sm) return plans_.get();
  if (is_reduction(collective))
    return misuse("policy zero_sm cannot run ", name(collective), " (on rank ", rank_,
                  "), because copy engines cannot reduce. It runs all_gather, all_to_all, "
                  "all_to_all_v, broadcast, gather, scatter, barrier, send and recv; use max_sms "
                  "to limit the SMs of a reduction");
  options.max_sms = 0;
  return no_sms_plans_ ? no_sms_plans_.get() : plans_.get();
}

bool DevicePath::exceeds_device(Collective collective) const {
  return connections_->has_rings() && collective != Collective::custom &&
         !plans_->serves(collective);
}

bool DevicePath::is_staged(const CallOptions& options) const {
  if (!connections_->has_rings()) return connections_->is_staged();
  return options.policy.value_or(*job_->call_defaults().policy) == Policy::zero_sm;
}

Status DevicePath::check(const CallView& call) const {
  UNISONO_TRY(connections_->check_stream(
      *call.options.stream, is_staged(call.options) || exceeds_device(call.collective)));
  UNISONO_TRY(connections_->check_buffer("input", call.input, rank_));
  if (call.output == call.input) return {};
  return connections_->check_buffer("output", call.output, rank_);
}

Status DevicePath::prepare(std::span<const Message> messages, const CallOptions& options,
                           Task& task) {
  const bool stages = is_staged(options);
  UNISONO_TRY(connections_->check_stream(*options.stream, stages));
  std::uint64_t bytes = 0;
  for (const Message& message : messages) {
    const void* data = message.is_send ? message.send_data : message.recv_data;
    if (message.count > 0)
      UNISONO_TRY(connections_->check_buffer(message.is_send ? "send's buffer" : "receive's buffer",
                                             data, rank_));
    bytes += static_cast<std::uint64_t>(message.count) * size_bytes(message.type);
  }
  CallOptions call = options;
  settle(call);
  if (stages) {
    UNISONO_TRY(staging_->prepare(messages, host_.messages(), task));
  } else if (call.policy == Policy::zero_sm) {
    UNISONO_ASSIGN(task.owned, engine::gpu::make_copied_messages(messages, rank_, *connections_));
  } else {
    UNISONO_ASSIGN(task.owned,
                   engine::gpu::make_messages(messages, rank_, ranks_, call, *connections_));
  }
  if (!stages) host_.messages().count_on_stream(messages, task);
  task.execution = task.owned.get();
  task.in_order = true;
  task.entry.bytes = bytes;
  task.entry.path = task.execution->path(task.arguments);
  task.set_messages("messages");
  return {};
}

void DevicePath::suspend() {
  forget_prepared();
  // Executions hold connections.
  plans_.reset();
  no_sms_plans_.reset();
  staging_.reset();
  connections_->suspend();
}

Status DevicePath::resume(std::span<const Registered> registered) {
  connections_->resume();
  return make_plans(registered);
}

void DevicePath::report(MemoryReport& report) const {
  connections_->report(report);
  if (staging_) report.scratch_bytes += staging_->memory_bytes();
  for (Plans* const plans : {plans_.get(), no_sms_plans_.get()})
    if (plans != nullptr) report.plans_bytes += plans->memory_bytes();
}

}  // namespace unisono::comm
