// Calls on CUDA streams.

#include "base/error.h"
#include "base/try.h"
#include "comm/core.h"
#include "comm/run/calls.h"
#include "engine/gpu/copies.h"
#include "engine/gpu/copy_program.h"
#include "engine/gpu/lower.h"
#include "engine/gpu/messages.h"

namespace unisono {

Result<comm::DeviceConnections*> Communicator::Core::device_for(void* stream) {
  if (comm::DeviceConnections* const known = device()) return known;
  const std::lock_guard lock(device_mutex_);
  if (comm::DeviceConnections* const known = device()) return known;
  int ordinal = job->device();
  if (ordinal < 0) {
    auto of_stream = sys::cuda::Device::ordinal_of(static_cast<sys::cuda::StreamHandle*>(stream));
    // Without one, opening it says on all ranks alike what is wrong.
    ordinal = of_stream.ok() ? *of_stream : 0;
  }
  UNISONO_TRY(make_device(ordinal));
  return device();
}

Result<std::unique_ptr<comm::Plans>> Communicator::Core::make_device_plans(
    comm::DeviceConnections& connected) {
  if (connected.is_staged()) {
    staging_ = std::make_unique<comm::Staging>(connected);
    comm::Selection selection(plans->placement(),
                              comm::host_model(job->fifo_options(), job->host_traits()));
    UNISONO_TRY(selection.read_settings());
    const auto make =
        [this](const comm::Plans::Program& made) -> Result<std::unique_ptr<engine::Execution>> {
      UNISONO_ASSIGN(auto on_host, make_on_host(made));
      return staging_->stage(made.header, rank, std::move(on_host));
    };
    return std::make_unique<comm::Plans>(std::move(selection), rank, engine::limits().operations,
                                         job->fifo_options().usable_slots(), make);
  }
  comm::Selection selection(
      topo::Placement::single_node(size),
      comm::device_model(connected.engine().options(), connected.thread_blocks(),
                         connected.engine().paths()));
  UNISONO_TRY(selection.read_settings());
  const auto make = [&connected](const comm::Plans::Program& made) {
    return engine::gpu::make_execution(made.header, made.program, made.exchange(), connected);
  };
  return std::make_unique<comm::Plans>(std::move(selection), rank, engine::gpu::limits().operations,
                                       connected.engine().options().slots, make);
}

Status Communicator::Core::make_device(int ordinal) {
  UNISONO_ASSIGN(auto made, comm::DeviceConnections::make(job, *group, {id, epoch, rank}, ordinal));
  made->watch(signals.get());
  UNISONO_TRY(make_plans_of_device(*made));
  device_connections_ = std::move(made);
  scheduler->watch(*device_connections_);
  device_.store(device_connections_.get(), std::memory_order_release);
  return {};
}

Status Communicator::Core::make_plans_of_device(comm::DeviceConnections& connected) {
  UNISONO_ASSIGN(auto plans_there, make_device_plans(connected));
  for (const comm::Registered& plan : registered_) {
    if (!plans_there->can_run(plan)) {
      plans_there->refuse(plan);
      continue;
    }
    UNISONO_ASSIGN(auto prepared, plans_there->prepare(plan));
    plans_there->add(std::move(prepared));
  }
  device_plans_ = std::move(plans_there);
  copy_plans_ = std::make_unique<comm::Plans>(
      comm::Selection(topo::Placement::single_node(size),
                      comm::copy_model(connected.engine().options().copies)),
      rank, engine::gpu::copy_limits().operations, connected.engine().options().copies.slots,
      [resources = &connected](const comm::Plans::Program& made) {
        return engine::gpu::make_copies(made.header, made.program, made.exchange().get(),
                                        *resources);
      });
  return {};
}

std::size_t Communicator::Core::staging_bytes() const {
  return device() != nullptr && staging_ ? staging_->memory_bytes() : 0;
}

Status Communicator::Core::settle(std::optional<Policy>& policy, int& max_sms) const {
  UNISONO_TRY(comm::check_max_sms(max_sms, rank));
  if (!policy) policy = job->policy();
  if (max_sms == 0) max_sms = job->max_sms();
  if (device() != nullptr) max_sms = device()->bounded(max_sms);
  return {};
}

Result<Communicator::Core::Means> Communicator::Core::means_of(const Call& call) {
  Means means{plans.get(), call.options};
  if (!call.options.stream) {
    means.options.max_sms = 0;
    return means;
  }
  UNISONO_TRY(settle(means.options.policy, means.options.max_sms));
  if (job->leaves_room()) means.options.leaves_room = true;
  means.plans = device_plans_.get();
  if (device()->is_staged()) means.options.max_sms = 0;  // it takes none
  if (means.options.policy != Policy::zero_sm) return means;
  if (is_reduction(call.collective))
    return misuse("policy zero_sm cannot run ", name(call.collective), " (on rank ", rank,
                  "), because copy engines cannot reduce. It runs all_gather, all_to_all, "
                  "all_to_all_v, broadcast, gather, scatter, barrier, send and recv; use max_sms "
                  "to limit the SMs of a reduction");
  if (!device()->is_staged()) means.plans = copy_plans_.get();
  means.options.max_sms = 0;
  return means;
}

Status Communicator::Core::check_device(const Call& call,
                                        const comm::DeviceConnections& connected) const {
  UNISONO_TRY(connected.check_stream(*call.options.stream));
  UNISONO_TRY(connected.check_buffer("input", call.input, rank));
  if (call.output == call.input) return {};
  return connected.check_buffer("output", call.output, rank);
}

Status Communicator::Core::prepare_on_stream(std::span<const Message> messages,
                                             const MessageOptions& options, comm::Task& task) {
  for (const Message& message : messages) {
    if (message.peer == any_source)
      return misuse(
          "rank ", rank,
          " receives from any source on a stream; name the peer of a receive between devices");
    if (message.tag != 0)
      return misuse("tag is ", message.tag, " in a message on a stream on rank ", rank,
                    "; it must be 0 between devices");
  }
  UNISONO_ASSIGN(comm::DeviceConnections * connected, device_for(*options.stream));
  UNISONO_TRY(connected->check_stream(*options.stream));
  for (const Message& message : messages) {
    const void* data = message.is_send ? message.send_data : message.recv_data;
    if (message.count > 0)
      UNISONO_TRY(connected->check_buffer(message.is_send ? "send's buffer" : "receive's buffer",
                                          data, rank));
    task.entry.bytes += static_cast<std::uint64_t>(message.count) * size_bytes(message.type);
  }
  std::optional<Policy> policy = options.policy;
  int max_sms = options.max_sms;
  UNISONO_TRY(settle(policy, max_sms));
  const std::uint64_t bytes = task.entry.bytes;
  if (connected->is_staged()) {
    UNISONO_TRY(staging_->prepare(messages, *point_to_point, task));
    task.entry.bytes = bytes;
  } else if (policy == Policy::zero_sm) {
    UNISONO_ASSIGN(task.owned, engine::gpu::make_copied_messages(messages, rank, *connected));
  } else {
    UNISONO_ASSIGN(task.owned,
                   engine::gpu::make_messages(messages, rank, size, max_sms, *connected));
  }
  if (!connected->is_staged()) point_to_point->count_on_stream(messages, task);
  task.execution = task.owned.get();
  task.in_order = true;
  task.arguments.is_on_stream = true;
  task.arguments.stream = *options.stream;
  task.arguments.timeout_ns = options.timeout.count() > 0 ? options.timeout.count() : timeout_ns;
  task.entry.collective = Collective::point_to_point;
  task.entry.type = DataType::uint8;
  task.entry.path = task.execution->path(task.arguments);
  task.entry.set_plan("messages");
  return {};
}

}  // namespace unisono
