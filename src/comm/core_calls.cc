// A communicator's calls: checked, chosen, and run at once or as tasks.

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "comm/core.h"
#include "comm/run/calls.h"
#include "comm/run/out_of_memory.h"

namespace unisono {

void Communicator::Core::stamp(comm::Task& task) {
  const std::int64_t now = scheduler->now_ns();
  if (task.entry.is_message()) {
    task.entry.sequence = next_messages.fetch_add(task.parts.size(), std::memory_order_relaxed);
    std::uint64_t number = task.entry.sequence;
    for (comm::Task::Part& part : task.parts) part.number = number++;
  } else {
    task.entry.sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
  }
  task.entry.scheduled_ns = now;
  task.deadline_ns = now + task.arguments.timeout_ns();
}

// The host's plans hold all that is registered.
Result<plan::Header> Communicator::Core::shape_of(const comm::CallView& call) {
  if (call.collective == Collective::custom) return host->plans()->custom(call.options.algorithm);
  return comm::shape_of(call, size);
}

Status Communicator::Core::prepare_for_repeats(const comm::CallView& call, comm::CallPath& path,
                                               comm::PreparedCollective& prepared) {
  prepared.execution = nullptr;
  UNISONO_ASSIGN(const plan::Header shape, shape_of(call));
  UNISONO_ASSIGN(const bool in_place, comm::check_call(call, shape, rank));
  static_cast<comm::PreparedCall&>(prepared) = {};
  UNISONO_TRY(select(call, shape, path, in_place, prepared));
  const std::uint64_t block = comm::block_bytes(call);
  prepared.input_bytes = block * static_cast<std::uint64_t>(plan::input_blocks_of(shape, rank));
  prepared.output_bytes = block * static_cast<std::uint64_t>(plan::output_blocks_of(shape, rank));
  prepared.count = call.count;
  prepared.root = call.root;
  prepared.asked = call.options;
  prepared.in_place = in_place;
  prepared.kind = ++kinds_;
  return {};
}

// What ranks need not agree on may differ from the call that it was prepared for.
inline void Communicator::Core::set_own(const CallOptions& options,
                                        comm::PreparedCall& call) const {
  CallOptions& own = call.arguments.options;
  own.stream = options.stream;
  own.timeout =
      options.timeout.count() > 0 ? options.timeout : std::chrono::nanoseconds(timeout_ns);
  call.entry.tag = options.tag;
}

inline bool Communicator::Core::try_begin_inline() {
  if (is_forked() || !scheduler->try_begin_inline()) return false;
  if (!destroyed.load(std::memory_order_acquire) && !suspended.load(std::memory_order_acquire))
    return true;
  scheduler->end_inline();
  return false;
}

bool Communicator::Core::try_run_inline(const comm::CallView& call, Status& outcome) {
  // Blocks of unequal size are not described by `count`.
  if (call.collective == Collective::all_to_all_v || call.collective == Collective::custom ||
      checks_calls)
    return false;
  comm::CallPath* path = host.get();
  if (call.options.stream) {
    path = device();
    if (path == nullptr || !path->check(call).ok()) return false;
  }
  if (!try_begin_inline()) return false;
  comm::PreparedCollective& prepared = path->prepared(call.collective);
  const bool same_buffers = prepared.has_buffers(call.input, call.output);
  bool is_ready = prepared.serves(call);
  if (!is_ready || (!same_buffers && comm::is_in_place(call, rank) != prepared.in_place))
    is_ready = comm::or_out_of_memory(rank, [&] {
                 return prepare_for_repeats(call, *path, prepared);
               }).ok();
  else if (!same_buffers)
    is_ready =
        comm::buffers_fit(call, prepared.input_bytes, prepared.output_bytes, prepared.in_place);
  if (!is_ready) [[unlikely]] {
    scheduler->end_inline();
    return false;
  }
  prepared.arguments.input = call.input;
  prepared.arguments.output = call.output;
  prepared.arguments.pre_multiplier = call.multiplier;
  set_own(call.options, prepared);
  prepared.entry.sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
  scheduler->run_inline(prepared, outcome);
  return true;
}

Status Communicator::Core::run_as_task(const comm::CallView& call) {
  comm::Task task;
  UNISONO_TRY(comm::or_out_of_memory(rank, [&] { return prepare(call, task); }));
  return scheduler->run(task);
}

bool Communicator::Core::try_run_inline(const Message& message, Status& outcome) {
  if (message.tag != 0 || message.count == 0 || message.peer == rank ||
      !comm::check_message(message, rank, size, 1).ok() || message.peer == any_source ||
      !try_begin_inline())
    return false;
  auto found = comm::or_out_of_memory(rank, [&] { return host->messages().prepared(message); });
  if (!found.ok() || !(*found)->try_begin()) {
    scheduler->end_inline();
    return false;
  }
  comm::PointToPoint::PreparedMessage& prepared = **found;
  if (prepared.kind == 0) prepared.kind = ++kinds_;
  prepared.arguments.options.timeout = std::chrono::nanoseconds(timeout_ns);
  prepared.number = next_messages.fetch_add(1, std::memory_order_relaxed);
  scheduler->run_inline(prepared, outcome);
  prepared.end();
  return true;
}

Status Communicator::Core::prepare(const comm::CallView& call, comm::Task& task) {
  UNISONO_TRY(usable());
  Status is_right = check_and_select(call, task);
  // A rank that cannot make the call takes part in the comparison, so that no other waits for it.
  if (checks_calls)
    if (Status same = compare_calls(comm::card_of(call, task, is_right)); is_right.ok())
      is_right = std::move(same);
  if (is_right.ok()) stamp(task);
  return is_right;
}

bool Communicator::Core::can_choose(const comm::CallView& call) {
  comm::Task task;
  return usable().ok() && check_and_select(call, task).ok();
}

Status Communicator::Core::check_and_select(const comm::CallView& call, comm::Task& task) {
  UNISONO_ASSIGN(const plan::Header shape, shape_of(call));
  UNISONO_ASSIGN(const bool in_place, comm::check_call(call, shape, rank));
  UNISONO_ASSIGN(const comm::CallPath* path, path_for(call.options.stream));
  UNISONO_TRY(path->check(call));
  task.in_order = true;
  return select(call, shape, *path, in_place, task);
}

Status Communicator::Core::select(const comm::CallView& call, const plan::Header& shape,
                                  const comm::CallPath& path, bool in_place,
                                  comm::PreparedCall& prepared) {
  const int root = has_root(call.collective) ? call.root : 0;
  std::uint64_t bytes = comm::call_bytes(call.collective, size, comm::block_bytes(call));
  if (call.collective == Collective::custom)
    bytes *= static_cast<std::uint64_t>(std::max(shape.input_blocks, shape.output_blocks));
  prepared.arguments = comm::arguments_of(call);
  UNISONO_ASSIGN(comm::Plans* const plans,
                 path.plans_for(call.collective, prepared.arguments.options));
  UNISONO_ASSIGN(const comm::Plans::Chosen chosen,
                 plans->choose(call.collective, bytes, root, in_place, prepared.arguments));
  prepared.execution = chosen.execution;
  prepared.arguments.call.plan = chosen.plan;
  prepared.arguments.path = chosen.choice.path;
  prepared.entry.collective = call.collective;
  prepared.entry.protocol = chosen.choice.protocol;
  prepared.entry.path = chosen.choice.path;
  prepared.entry.fallback = chosen.choice.fallback;
  prepared.entry.chosen = chosen.choice.instead_of;
  prepared.entry.type = call.type;
  prepared.entry.operation = call.operation;
  prepared.entry.root = root;
  prepared.entry.bytes = bytes;
  prepared.entry.tag = call.options.tag;
  prepared.entry.set_plan(chosen.choice.name());
  return {};
}

Status Communicator::Core::prepare(std::span<const Message> messages, const CallOptions& options,
                                   comm::Task& task) {
  UNISONO_TRY(usable());
  for (const Message& message : messages)
    UNISONO_TRY(comm::check_message(message, rank, size, messages.size()));
  UNISONO_TRY(comm::check_options_of_messages(options, rank));
  if (options.stream)
    for (const Message& message : messages)
      UNISONO_TRY(comm::check_message_on_stream(message, rank));
  UNISONO_ASSIGN(comm::CallPath* const path, path_for(options.stream));
  UNISONO_TRY(path->prepare(messages, options, task));
  set_own(options, task);
  stamp(task);
  return {};
}

Result<std::uint64_t> Communicator::Core::exchange(const void* mine, void* all, std::size_t bytes) {
  Call made;
  made.collective = Collective::all_gather;
  made.input = mine;
  made.output = all;
  made.count = static_cast<std::int64_t>(bytes);
  made.type = DataType::uint8;
  const comm::CallView call = comm::view_of(made);
  comm::Task task;
  UNISONO_TRY(select(call, comm::shape_of(call, size), *host, comm::is_in_place(call, rank), task));
  task.in_order = true;
  stamp(task);
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

}  // namespace unisono
