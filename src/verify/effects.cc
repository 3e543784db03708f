// What executing a step does to memory, messages and knowledge.
#include <algorithm>
#include <utility>

#include "base/str.h"
#include "verify/execution.h"

namespace unisono::verify {

using plan::Location;
using plan::Operation;
using plan::Step;

bool Execution::execute(int block) {
  const Step& step = *blocks_[static_cast<std::size_t>(block)].cursor.step();
  switch (step.operation) {
    case Operation::barrier:
      return true;
    case Operation::wait:
      return take_token(block);
    case Operation::put:
      return put(block, step);
    case Operation::read_reduce:
      return read_reduce(block, step);
    default:
      return move_data(block, step);
  }
}

// The first chunk and cell that `location` names in `rank`'s memory.
bool Execution::find_operand(int block, const Location& location, int rank, int count,
                             std::int64_t& chunk, std::int64_t& cell) {
  chunk = location.index.at(blocks_[static_cast<std::size_t>(block)].cursor.loops());
  cell = memory_.cell(rank, location.buffer, chunk, count);
  if (cell >= 0) return true;
  return fail(block, Problem::malformed, location.buffer, chunk,
              str("chunks 0 to ", memory_.chunks(rank, location.buffer) - 1, " of rank ", rank,
                  "'s ", name(location.buffer)),
              str("chunks ", chunk, " to ", chunk + count - 1));
}

// What `location` gives when this rank reads it: through `input` only what the user put there,
// through any other name, in a reduction, only what was read before.
bool Execution::read(int block, const Location& location, std::int64_t chunk, std::int64_t cell,
                     Value& value) {
  const int rank = blocks_[static_cast<std::size_t>(block)].rank;
  value = cells_[static_cast<std::size_t>(cell)];
  if (location.buffer == plan::Buffer::input) {
    const std::int64_t original = contents_.initial(rank, chunk);
    const Sum raw = contents_.adds() ? sums_.raw(contents_.contribution(rank, chunk)) : plain;
    if (original < 0) {
      const std::string holder = contents_.only_the_root_has(plan::Buffer::input);
      return fail(block, Problem::unwritten_read, location.buffer, chunk,
                  "data that the collective gives this rank",
                  str("a buffer without data", holder.empty() ? "" : ": ", holder));
    }
    if (value.position != original || value.sum != raw)
      return fail(block, Problem::stale_read, location.buffer, chunk,
                  str("the rank's own contribution, ", contents_.describe(original)),
                  str("overwritten: ", describe(value)), {value, {}});
    if (contents_.adds()) value.sum = sums_.read(raw);
    return true;
  }
  if (value.sum == unwritten)
    return fail(block, Problem::unwritten_read, location.buffer, chunk,
                "data that something has written", "nothing was written there yet");
  if (contents_.adds() && sums_.is_raw(value.sum))
    return fail(block, Problem::stale_read, location.buffer, chunk,
                "a value that was read through input before",
                str("the raw contribution of ", contents_.describe(value.position),
                    ", which must be read through input"));
  return true;
}

bool Execution::add(int block, const Location& location, std::int64_t chunk, const Value& memory,
                    const Value& other, Value& sum) {
  if (!contents_.adds()) {
    if (is_barrier_) {
      sum = memory;
      return true;
    }
    return fail(block, Problem::stale_read, location.buffer, chunk,
                str("no reduction: ", name(header_.collective), " only moves data"),
                str(describe(other), " (+) ", describe(memory)), {memory, other});
  }
  if (memory.position != other.position)
    return fail(block, Problem::stale_read, location.buffer, chunk,
                str("another part of ", contents_.describe(other.position)), describe(memory),
                {memory, other});
  const Sum both = sums_.add(memory.sum, other.sum);
  if (both >= 0) {
    sum = {memory.position, both, -1};
    return true;
  }
  const RankSets::Id left = sums_.ranks_of(memory.sum);
  const RankSets::Id right = sums_.ranks_of(other.sum);
  const RankSets::Id twice = sums_.sets().intersect(left, right);
  return fail(block, Problem::double_contribution, location.buffer, chunk,
              str("contributions that do not overlap with ", describe(memory)),
              str(describe(other), ", so ", contents_.describe_contributions(twice, sums_.sets()),
                  " twice"),
              {memory, other});
}

// Chunks differ in size with their place in their block; in all_to_all_v also with the block.
std::int64_t Execution::size_class(plan::Buffer buffer, std::int64_t chunk, int rank) const {
  const std::int64_t chunks = header_.chunks_per_block;
  if (header_.collective != Collective::all_to_all_v) return chunk % chunks;
  const std::int64_t block = chunk / chunks;
  const std::int64_t ranks = header_.ranks;
  switch (buffer) {
    case plan::Buffer::input:
      return (rank * ranks + block) * chunks + chunk % chunks;
    case plan::Buffer::output:
      return (block * ranks + rank) * chunks + chunk % chunks;
    case plan::Buffer::scratch:
      return -1;  // no count says how large its blocks are
  }
  return -1;
}

std::string Execution::describe_size(std::int64_t size_class) const {
  const std::int64_t chunks = header_.chunks_per_block;
  if (size_class < 0) return "a scratch chunk, which has no size in all_to_all_v";
  if (header_.collective != Collective::all_to_all_v)
    return str("the size of chunk ", size_class, " of a block");
  return str("the size of chunk ", size_class % chunks, " from rank ",
             size_class / chunks / header_.ranks, " to rank ", size_class / chunks % header_.ranks);
}

bool Execution::sizes_match(int block, plan::Buffer left, std::int64_t left_chunk, int left_rank,
                            plan::Buffer right, std::int64_t right_chunk, int right_rank, int count,
                            bool is_message) {
  const bool linear = header_.collective != Collective::all_to_all_v;
  for (int i = 0; i < (linear ? 1 : count); ++i) {
    const std::int64_t wanted = size_class(left, left_chunk + i, left_rank);
    const std::int64_t given = size_class(right, right_chunk + i, right_rank);
    if (wanted == given && wanted >= 0) continue;
    return fail(block, Problem::size_mismatch, left, left_chunk + i, describe_size(wanted),
                str(is_message ? "a message with " : "", describe_size(given)));
  }
  return true;
}

void Execution::hold(std::int64_t cell, int count) {
  for (std::int64_t i = cell; i < cell + count; ++i) ++held_[static_cast<std::size_t>(i)];
}

// Takes the first message off its connection, and wakes who waited for that.
void Execution::take(Connection& connection) {
  const Message message = connection.messages[connection.first_message];
  ++connection.first_message;
  connection.first_value += static_cast<std::size_t>(message.count);
  if (connection.waiting() == 0) {
    connection.messages.clear();
    connection.values.clear();
    connection.first_message = 0;
    connection.first_value = 0;
  }
  if (connection.sender >= 0 &&
      blocks_[static_cast<std::size_t>(connection.sender)].wait == Wait::slot)
    wake(connection.sender);
  if (!options_.zero_copy) return;
  for (const std::int64_t held : message.held) {
    if (held < 0) continue;
    for (std::int64_t cell = held; cell < held + message.count; ++cell)
      --held_[static_cast<std::size_t>(cell)];
  }
  std::vector<int>& waiting = waiting_for_take_[static_cast<std::size_t>(connection.source_rank)];
  for (const int waiter : std::exchange(waiting, {})) wake(waiter);
}

void Execution::note(int block, Value& value, const Value& memory, const Value& message) {
  if (!record_) return;
  value.event = static_cast<std::int32_t>(events_.size());
  const std::int64_t step = blocks_[static_cast<std::size_t>(block)].cursor.number();
  events_.push_back({block, static_cast<std::int32_t>(step), memory.event, message.event, value});
}

bool Execution::move_data(int block, const Step& step) {
  Block& it = blocks_[static_cast<std::size_t>(block)];
  const bool is_token = step.operation == Operation::signal;
  const bool receives = plan::receives(step.operation);
  const bool reads = plan::reads_source(step.operation);
  const bool writes = plan::writes_destination(step.operation);
  const bool adds_memory = step.operation == Operation::reduce;
  const int count = is_token ? 0 : step.count;

  std::int64_t source_chunk = 0;
  std::int64_t source = -1;
  std::int64_t destination_chunk = 0;
  std::int64_t destination = -1;
  if (reads && !find_operand(block, step.source, it.rank, count, source_chunk, source))
    return false;
  if (writes) {
    if (!find_operand(block, step.destination, it.rank, count, destination_chunk, destination))
      return false;
    if (step.destination.buffer == plan::Buffer::input)
      return fail(block, Problem::input_written, plan::Buffer::input, destination_chunk,
                  "results in output or scratch", "a step that writes to input");
  }
  if (reads && writes) {
    if (!sizes_match(block, step.destination.buffer, destination_chunk, it.rank, step.source.buffer,
                     source_chunk, it.rank, count, false))
      return false;
    if (source != destination && std::abs(source - destination) < count)
      return fail(block, Problem::stale_read, step.source.buffer, source_chunk,
                  "a source that is disjoint from the destination, or the same",
                  str("chunks that overlap with ", name(step.destination.buffer), " ",
                      destination_chunk, " to ", destination_chunk + count - 1));
  }

  Connection* in = receives ? &connections_[static_cast<std::size_t>(it.in)] : nullptr;
  std::size_t first_value = 0;
  if (in) {
    const Message& message = in->messages[in->first_message];
    const Location& shape = writes ? step.destination : step.source;
    const std::int64_t shape_chunk = writes ? destination_chunk : source_chunk;
    if (message.count != count)
      return fail(block, Problem::size_mismatch, shape.buffer, shape_chunk,
                  str("a message of ", count, count == 1 ? " chunk" : " chunks"),
                  message.count == 0
                      ? std::string("a token")
                      : str(message.count, message.count == 1 ? " chunk" : " chunks", " from ",
                            describe_step(message.sender, message.sender_step)));
    if (!sizes_match(block, shape.buffer, shape_chunk, it.rank, message.shape, message.shape_chunk,
                     in->source_rank, count, true))
      return false;
    first_value = in->first_value;
    if (is_barrier_) learn(it, message.knowledge);
  }

  const bool sends = plan::sends(step.operation);
  outgoing_.clear();
  for (int i = 0; i < count; ++i) {
    const Value message = in ? in->values[first_value + static_cast<std::size_t>(i)] : Value{};
    Value memory;
    if (reads && !read(block, step.source, source_chunk + i, source + i, memory)) return false;
    Value result = reads ? memory : message;
    Value second = message;
    if (adds_memory &&
        !read(block, step.destination, destination_chunk + i, destination + i, second))
      return false;
    if (plan::reduces(step.operation) &&
        !add(block, step.source, source_chunk + i, memory, second, result))
      return false;
    note(block, result, memory, second);
    if (writes) cells_[static_cast<std::size_t>(destination + i)] = result;
    if (sends) outgoing_.push_back(result);
  }
  if (in) take(*in);
  if (!sends) return true;

  Connection& out = connections_[static_cast<std::size_t>(it.out)];
  Message message;
  message.count = count;
  message.shape = writes ? step.destination.buffer : step.source.buffer;
  message.shape_chunk = writes ? destination_chunk : source_chunk;
  message.sender = block;
  message.sender_step = it.cursor.number();
  message.knowledge = it.knowledge;
  message.puts = is_token ? std::exchange(out.new_puts, 0) : 0;
  if (options_.zero_copy && !is_token) {
    // copy_send may read either copy; recv_reduce_send's result lies in the slot alone.
    const bool from_source =
        step.operation == Operation::send || step.operation == Operation::copy_send;
    if (from_source) message.held[0] = source;
    if (writes) message.held[1] = destination;
    for (const std::int64_t held : message.held)
      if (held >= 0) hold(held, count);
  }
  out.messages.push_back(message);
  out.values.insert(out.values.end(), outgoing_.begin(), outgoing_.end());
  ++messages_;
  if (out.receiver >= 0 && blocks_[static_cast<std::size_t>(out.receiver)].wait == Wait::message)
    wake(out.receiver);
  return true;
}

// The data is on its way until the receiver has waited for the token that follows it.
bool Execution::put(int block, const Step& step) {
  Block& it = blocks_[static_cast<std::size_t>(block)];
  const int peer = it.thread_block->send_peer;
  if (peer < 0 || it.out < 0)
    return fail(block, Problem::malformed, step.destination.buffer, -1, "a peer to send to",
                "none");
  std::int64_t source_chunk = 0;
  std::int64_t source = -1;
  std::int64_t destination_chunk = 0;
  std::int64_t destination = -1;
  if (!find_operand(block, step.source, it.rank, step.count, source_chunk, source) ||
      !find_operand(block, step.destination, peer, step.count, destination_chunk, destination))
    return false;
  if (step.destination.buffer == plan::Buffer::input)
    return fail(block, Problem::input_written, plan::Buffer::input, destination_chunk,
                "results in output or scratch",
                str("a step that writes to rank ", peer, "'s input"));
  if (!sizes_match(block, step.destination.buffer, destination_chunk, peer, step.source.buffer,
                   source_chunk, it.rank, step.count, false))
    return false;
  Connection& out = connections_[static_cast<std::size_t>(it.out)];
  for (int i = 0; i < step.count; ++i) {
    Value value;
    if (!read(block, step.source, source_chunk + i, source + i, value)) return false;
    note(block, value, value, {});
    out.puts.push_back({destination + i, value});
  }
  out.new_puts += step.count;
  return true;
}

bool Execution::take_token(int block) {
  Block& it = blocks_[static_cast<std::size_t>(block)];
  Connection& in = connections_[static_cast<std::size_t>(it.in)];
  const Message& message = in.messages[in.first_message];
  if (message.count != 0)
    return fail(block, Problem::size_mismatch, plan::Buffer::scratch, -1, "a token",
                str("a message of ", message.count, " chunks from ",
                    describe_step(message.sender, message.sender_step)));
  for (int i = 0; i < message.puts; ++i) {
    const Put& put = in.puts[in.first_put++];
    Value value = put.value;
    note(block, value, {}, put.value);
    cells_[static_cast<std::size_t>(put.cell)] = value;
  }
  if (is_barrier_) learn(it, message.knowledge);
  take(in);
  return true;
}

bool Execution::read_reduce(int block, const Step& step) {
  const int rank = blocks_[static_cast<std::size_t>(block)].rank;
  std::int64_t chunk = 0;
  std::int64_t cell = -1;
  if (!find_operand(block, step.destination, rank, step.count, chunk, cell)) return false;
  if (step.destination.buffer == plan::Buffer::input)
    return fail(block, Problem::input_written, plan::Buffer::input, chunk,
                "results in output or scratch", "a step that writes to input");
  for (const int peer : step.peers) {
    std::int64_t peer_chunk = 0;
    std::int64_t peer_cell = -1;
    if (!find_operand(block, step.source, peer, step.count, peer_chunk, peer_cell) ||
        !sizes_match(block, step.destination.buffer, chunk, rank, step.source.buffer, peer_chunk,
                     peer, step.count, false))
      return false;
    for (int i = 0; i < step.count; ++i) {
      Value own;
      if (!read(block, step.destination, chunk + i, cell + i, own)) return false;
      Value theirs = cells_[static_cast<std::size_t>(peer_cell + i)];
      const bool by_input = step.source.buffer == plan::Buffer::input;
      if (theirs.sum == unwritten)
        return fail(block, Problem::unwritten_read, step.source.buffer, peer_chunk + i,
                    str("data that something has written in rank ", peer, "'s memory"),
                    "nothing was written there yet");
      if (contents_.adds() && by_input != sums_.is_raw(theirs.sum))
        return fail(block, Problem::stale_read, step.source.buffer, peer_chunk + i,
                    by_input ? str("rank ", peer, "'s own contribution")
                             : "a value that was read through input before",
                    describe(theirs));
      if (contents_.adds() && by_input) theirs.sum = sums_.read(theirs.sum);
      Value sum;
      if (!add(block, step.destination, chunk + i, own, theirs, sum)) return false;
      note(block, sum, own, theirs);
      cells_[static_cast<std::size_t>(cell + i)] = sum;
    }
  }
  return true;
}

}  // namespace unisono::verify
