// What a thread block does from the beginning of a step to its end.
//
// `now` is the clock: everything shared is taken at it, in order. A thread block's own time may lie
// ahead: it then waits in the queue before it touches what others share.
#include <algorithm>

#include "simulate/executor.h"

namespace unisono::simulate {

using plan::Operation;

void Executor::begin(std::uint32_t number, Time now) {
  Thread& thread = threads_[number];
  const plan::Step& step = *thread.cursor.step();
  if (!step.after.empty()) {
    if (thread.time > now) return schedule(number, thread.time, Stage::begin);
    if (!dependencies_hold(number, now)) return;
  }
  thread.began = thread.time;
  thread.bytes = thread.call->sizes.bytes(step, thread.cursor.loops(), thread.tile);
  const bool is_token = step.operation == Operation::signal || step.operation == Operation::wait;
  if (is_token) thread.bytes = 0;
  if (step.operation == Operation::barrier) {
    if (thread.time > now) return schedule(number, thread.time, Stage::begin);
    if (pass_barrier(number, now)) finish(number, thread.time, now);
    return;
  }
  if (thread.bytes == 0 && !is_token) return schedule(number, thread.time, Stage::finish);
  if (plan::receives(step.operation)) return take(number, now);
  if (thread.time > now && (machine_.ranks_share_core || plan::sends(step.operation)))
    return schedule(number, thread.time, Stage::begin);
  if (core_is_busy(number, now, Stage::begin)) return;
  if (step.operation == Operation::put) return put(number, now);
  if (step.operation == Operation::read_reduce) {
    read_peers(number);
  } else {
    thread.time += work(number, thread.bytes);
  }
  hold_core(thread, thread.time);
  if (!plan::sends(step.operation)) return schedule(number, thread.time, Stage::finish);
  if (thread.time > now) return schedule(number, thread.time, Stage::send);
  send(number, now);
}

// The time of a step's own work, apart from sending and receiving.
Time Executor::work(std::uint32_t number, std::int64_t bytes) {
  const Call& call = *threads_[number].call;
  const Operation operation = threads_[number].cursor.step()->operation;
  Time time = 0;
  if (plan::reduces(operation)) {
    const Time reduced = transfer_time(call.reduce_ps_per_byte, bytes);
    charge(number, Share::reduction, reduced);
    charge(number, Share::overhead, call.reduction_overhead);
    time = reduced + call.reduction_overhead;
  }
  const bool stores_and_sends = plan::sends(operation) && plan::writes_destination(operation);
  const bool copies = operation == Operation::copy || operation == Operation::copy_send;
  if (copies || (stores_and_sends && call.pays_for_stores)) {
    const Time copied = transfer_time(call.copy_ps_per_byte, bytes);
    charge(number, Share::copy, copied);
    time += copied;
  }
  if (stores_and_sends) {
    charge(number, Share::overhead, call.copy_overhead);
    time += call.copy_overhead;
  }
  return time;
}

// The step's message, if it is there. A step that only receives copies while the bytes come, or
// once all are there; one that also sends works on them on their way out.
void Executor::take(std::uint32_t number, Time now) {
  Thread& thread = threads_[number];
  Connection& in = connections_[thread.in];
  if (in.untaken == none || in.untaken == in.undelivered) {
    thread.wait = Wait::message;
    return;
  }
  const std::uint32_t taken = in.untaken;
  const Message& message = messages_[taken];
  if (machine_.ranks_share_core) {
    wait_for(number, taken);
    if (thread.time > now) return schedule(number, thread.time, Stage::take);
    if (core_is_busy(number, now, Stage::take)) return;
  }
  const plan::Step& step = *thread.cursor.step();
  const Way& way = ways_[in.way];
  const bool passes_on = plan::sends(step.operation);
  const bool is_whole = way.receive_ps_per_byte > 0;
  const double ps_per_byte = is_whole ? way.receive_ps_per_byte : way.thread_ps_per_byte;
  const Time copied = passes_on ? 0 : transfer_time(ps_per_byte, beyond_first(message.wire_bytes));
  if (is_whole) wait_for(number, taken);
  if (message.time > thread.time + copied) {
    wait_for(number, taken);
  } else {
    thread.time += copied;
    charge(number, Share::thread_block, copied);
  }
  thread.time += way.recv_overhead;
  charge(number, Share::overhead, way.recv_overhead);
  thread.time += work(number, thread.bytes);
  in.untaken = message.next;
  hold_core(thread, thread.time);
  schedule(number, thread.time, passes_on ? Stage::send : Stage::finish);
}

// The thread block goes on when the message is there, if that is later.
void Executor::wait_for(std::uint32_t number, std::uint32_t message) {
  if (messages_[message].time <= threads_[number].time) return;
  threads_[number].time = messages_[message].time;
  if (options_.explain) paths_[number] = message_paths_[message];
}

void Executor::send(std::uint32_t number, Time now) {
  if (!get_slot(number, now)) return;
  if (core_is_busy(number, now, Stage::send)) return;
  Thread& thread = threads_[number];
  const Way& way = ways_[connections_[thread.out].way];
  const std::int64_t bytes = wire_bytes(thread);
  const Time leaves = leave_port(number, now, bytes);
  launch(number, leaves, bytes);
  const Time copied = transfer_time(way.thread_ps_per_byte, beyond_first(bytes));
  thread.time = leaves + way.send_overhead + copied;
  hold_core(thread, thread.time);
  if (stores_wait(way)) return;  // end_flow() finishes the step
  charge(number, Share::overhead, way.send_overhead);
  charge(number, Share::thread_block, copied);
  finish(number, thread.time, now);
}

// The step is complete at `at`, which may lie ahead of the clock: what asks for it looks at
// finished_at.
void Executor::finish(std::uint32_t number, Time at, Time now) {
  Thread& thread = threads_[number];
  const plan::Step& step = *thread.cursor.step();
  if (plan::receives(step.operation) && (thread.bytes > 0 || step.operation == Operation::wait))
    release(thread.in, number, at);
  if (options_.timeline != nullptr && at > thread.began)
    options_.timeline->bar(endpoints_[thread.endpoint].shown_rank, line_of(thread),
                           plan::name(step.operation), thread.began, at, thread.bytes);
  ++result_.steps;
  thread.finished_at = at;
  if (options_.explain) finished_paths_[number] = paths_[number];
  thread.cursor.advance();
  if (thread.first_waiter != none) wake_waiters(thread, number);
  if (thread.cursor.step() == nullptr && !next_tile(number, at)) return;
  // A step that took no time goes through the queue, so that many in a row do not pile up here.
  if (at == now) return schedule(number, at, Stage::begin);
  begin(number, now);
}

// False after the last one.
bool Executor::next_tile(std::uint32_t number, Time at) {
  Thread& thread = threads_[number];
  thread.tile_steps = thread.cursor.number();
  if (++thread.tile < thread.call->sizes.tiles()) {
    thread.cursor = plan::StepCursor(thread.block->body);
    return true;
  }
  thread.stage = Stage::ended;
  --running_;
  Instance& instance = instances_[thread.instance];
  instance.finished = std::max(instance.finished, at);
  if (--instance.running == 0) schedule_end(thread.instance);
  return false;
}

bool Executor::dependencies_hold(std::uint32_t number, Time now) {
  Thread& thread = threads_[number];
  for (const plan::Dependency& dependency : thread.cursor.step()->after) {
    const std::uint32_t other_number = instances_[thread.instance].first_thread +
                                       static_cast<std::uint32_t>(dependency.thread_block);
    Thread& other = threads_[other_number];
    const std::int64_t steps = dependency.steps.at(thread.cursor.loops());
    const bool done =
        other.tile > thread.tile || (other.tile == thread.tile && other.cursor.number() >= steps);
    if (!done) {
      thread.wait = Wait::dependency;
      thread.next_waiter = other.first_waiter;
      other.first_waiter = number;
      return false;
    }
    if (other.finished_at <= now) continue;
    // Complete, but ahead of the clock; only the last complete step can be.
    const bool is_last = other.tile == thread.tile
                             ? other.cursor.number() == steps
                             : other.tile == thread.tile + 1 && steps == other.tile_steps &&
                                   (other.stage == Stage::ended || other.cursor.number() == 0);
    if (!is_last) continue;
    thread.time = other.finished_at;
    if (options_.explain) paths_[number] = finished_paths_[other_number];
    schedule(number, thread.time, Stage::begin);
    return false;
  }
  return true;
}

void Executor::wake_waiters(Thread& done, std::uint32_t done_number) {
  std::uint32_t number = done.first_waiter;
  done.first_waiter = none;
  while (number != none) {
    Thread& thread = threads_[number];
    const std::uint32_t next = thread.next_waiter;
    thread.next_waiter = none;
    thread.wait = Wait::nothing;
    if (done.finished_at > thread.time) {
      thread.time = done.finished_at;
      if (options_.explain) paths_[number] = finished_paths_[done_number];
    }
    schedule(number, thread.time, Stage::begin);
    number = next;
  }
}

// True for the thread block that comes last; the others go on with it.
bool Executor::pass_barrier(std::uint32_t number, Time now) {
  Instance& instance = instances_[threads_[number].instance];
  const auto blocks = static_cast<std::uint32_t>(instance.program.thread_blocks.size());
  if (++instance.at_barrier < blocks) {
    threads_[number].wait = Wait::barrier;
    return false;
  }
  instance.at_barrier = 0;
  for (std::uint32_t other = instance.first_thread; other < instance.first_thread + blocks;
       ++other) {
    if (other == number || threads_[other].wait != Wait::barrier) continue;
    threads_[other].wait = Wait::nothing;
    threads_[other].time = now;
    if (options_.explain) paths_[other] = paths_[number];
    schedule(other, now, Stage::finish);
  }
  return true;
}

// Writes into the peer's memory: like a message, but without a slot, and nobody takes it.
void Executor::put(std::uint32_t number, Time now) {
  Thread& thread = threads_[number];
  Connection& out = connections_[thread.out];
  const Way& way = ways_[out.way];
  const std::int64_t bytes = wire_bytes(thread);
  const Time leaves = leave_port(number, now, bytes);
  const Time moved = transfer_time(way.wire_ps_per_byte, beyond_first(bytes));
  out.puts_arrived = std::max(out.puts_arrived, leaves + way.send_overhead + way.latency + moved);
  const Time copied = transfer_time(way.thread_ps_per_byte, beyond_first(bytes));
  charge(number, Share::overhead, way.send_overhead);
  charge(number, Share::thread_block, copied);
  thread.time = leaves + way.send_overhead + copied;
  schedule(number, thread.time, Stage::finish);
}

// Loads from the memory of ranks of the same node, one after another.
void Executor::read_peers(std::uint32_t number) {
  Thread& thread = threads_[number];
  const Way& way = ways_[thread.call->first_way];
  const auto peers = static_cast<std::int64_t>(thread.cursor.step()->peers.size());
  const std::int64_t bytes = thread.bytes * peers;
  const Time moved = transfer_time(way.wire_ps_per_byte, bytes);
  charge(number, Share::latency, 2 * way.latency);
  charge(number, Share::thread_block, moved);
  thread.time += 2 * way.latency + moved + work(number, bytes);
}

bool Executor::core_is_busy(std::uint32_t number, Time now, Stage stage) {
  if (!machine_.ranks_share_core) return false;
  Thread& thread = threads_[number];
  const Time free = core_free_[endpoints_[thread.endpoint].core];
  if (free <= now) return false;
  charge(number, Share::queue, free - thread.time);
  thread.time = free;
  schedule(number, free, stage);
  return true;
}

void Executor::hold_core(const Thread& thread, Time until) {
  if (machine_.ranks_share_core) core_free_[endpoints_[thread.endpoint].core] = until;
}

}  // namespace unisono::simulate
