// Arithmetic, memory, and what each operation does.
#include <algorithm>
#include <utility>

#include "support/interpreter_run.h"

namespace unisono::test::interpreter {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
  return x ^ (x >> 33);
}

}  // namespace

Element number(std::uint64_t sum) { return {sum, mix(sum)}; }
Element operator+(Element a, Element b) {
  if (a.history > b.history) std::swap(a, b);
  return {a.sum + b.sum, mix(a.history * 3 + b.history)};
}
Element operator*(Element a, std::uint64_t factor) { return number(a.sum * factor); }

void Run::write(Pending pending) {
  for (const auto& [to, data] : pending.writes)
    memory(to.tile, to.rank, to.buffer, to.chunk) = data;
  if (!pending.out) return;
  for (const Held& held : pending.message.held) hold(held, 1);
  pending.out->messages.push_back(std::move(pending.message));
}

Chunk Run::look(const Block& block, Buffer buffer, std::int64_t chunk) {
  Chunk data = memory(block.tile, block.rank, buffer, chunk);
  if (buffer == Buffer::input) scale(data, block.rank);
  return data;
}

void Run::scale(Chunk& data, int rank) {
  if (!is_reduction(header_.collective)) return;
  for (Element& element : data) element = element * factors_[static_cast<std::size_t>(rank)];
}

bool Run::is_held(const Block& block, Buffer buffer, std::int64_t chunk) {
  const plan::Storage storage = plan::storage_of(header_, block.rank, buffer, chunk);
  const auto found = held_.find({block.tile, block.rank, storage.buffer, storage.chunk});
  return found != held_.end() && found->second > 0;
}

void Run::hold(const Held& held, int difference) {
  const plan::Storage storage = plan::storage_of(header_, held.rank, held.buffer, held.chunk);
  held_[{held.tile, held.rank, storage.buffer, storage.chunk}] += difference;
}

std::int64_t Run::bytes(int rank, const Location& location, int count,
                        const plan::LoopValues& loops) {
  std::int64_t elements = 0;
  for (int i = 0; i < count; ++i)
    elements +=
        std::max<std::int64_t>(0, size_of(rank, location.buffer, location.index.at(loops) + i));
  return elements * 8;
}

bool Run::execute(Block& block, const Step& step, const plan::LoopValues& loops) {
  if (step.operation == Operation::put) return put(block, step, loops);
  if (step.operation == Operation::read_reduce) return read_reduce(block, step, loops);
  const bool writes = plan::writes_destination(step.operation);
  const bool reads = plan::reads_source(step.operation);
  const Location& shape = writes ? step.destination : step.source;
  // A message of no bytes is not sent; a barrier's carries no data at all.
  const bool exists = plan::is_one_sided(step.operation) ||
                      header_.collective == Collective::barrier ||
                      bytes(block.rank, shape, step.count, loops) > 0;
  const bool receives = plan::receives(step.operation) && exists;
  const bool sends = plan::sends(step.operation) && exists;
  Connection* in = nullptr;
  if (receives) {
    in = &connection(block.thread_block->recv_peer, block.rank, block.thread_block->channel);
    if (in->messages.empty()) return false;
  }
  Connection* out = nullptr;
  if (sends) {
    out = &connection(block.rank, block.thread_block->send_peer, block.thread_block->channel);
    if (out->messages.size() >= static_cast<std::size_t>(options_.slots)) return false;
  }
  const std::int64_t destination = writes ? step.destination.index.at(loops) : 0;
  const std::int64_t source = reads ? step.source.index.at(loops) : 0;
  for (int i = 0; writes && i < step.count; ++i)
    if (is_held(block, step.destination.buffer, destination + i)) return false;
  if (writes && step.destination.buffer == Buffer::input) return fault(block, "writes its input");

  if (step.operation == Operation::wait) return take_token(block, *in);
  if (step.operation == Operation::signal) {
    block.pending.out = out;
    block.pending.message.is_token = true;
    block.pending.message.puts = std::exchange(out->puts, {});
    return true;
  }
  Message received;
  if (in) {
    received = std::move(in->messages.front());
    in->messages.pop_front();
    if (received.is_token) return fault(block, "got a token for a message");
    if (static_cast<int>(std::max(received.data.size(), received.held.size())) != step.count)
      return fault(block, "got a message of another number of chunks");
    for (const Held& held : received.held) {
      received.data.push_back(memory(held.tile, held.rank, held.buffer, held.chunk));
      if (received.scale) scale(received.data.back(), held.rank);
      hold(held, -1);
    }
  }
  Message& message = block.pending.message;
  const bool by_reference =
      options_.zero_copy && sends && step.operation != Operation::recv_reduce_send;
  for (int i = 0; i < step.count; ++i) {
    const std::int64_t size =
        size_of(block.rank, shape.buffer, (writes ? destination : source) + i);
    if (size < 0) return fault(block, "uses a chunk without a size");
    Chunk result = in ? received.data[static_cast<std::size_t>(i)]
                      : Chunk(static_cast<std::size_t>(receives ? 0 : size));
    if (plan::receives(step.operation) && !in) result.resize(static_cast<std::size_t>(size));
    if (static_cast<std::int64_t>(result.size()) != size)
      return fault(block, "got a message of another size");
    if (reads) {
      const Chunk mine = look(block, step.source.buffer, source + i);
      if (size_of(block.rank, step.source.buffer, source + i) != size)
        return fault(block, "combines chunks of different sizes");
      if (step.operation == Operation::reduce)
        result = look(block, step.destination.buffer, destination + i);
      for (std::size_t e = 0; e < mine.size(); ++e)
        result[e] = plan::reduces(step.operation) ? result[e] + mine[e] : mine[e];
    }
    if (writes)
      block.pending.writes.push_back(
          {{block.rank, block.tile, step.destination.buffer, destination + i}, result});
    if (!sends) continue;
    if (by_reference) {
      message.scale = !writes && step.source.buffer == Buffer::input;
      message.held.push_back(
          {block.rank, block.tile, shape.buffer, (writes ? destination : source) + i});
    } else {
      message.data.push_back(std::move(result));
    }
  }
  block.pending.out = out;
  return true;
}

bool Run::put(Block& block, const Step& step, const plan::LoopValues& loops) {
  const int peer = block.thread_block->send_peer;
  if (step.destination.buffer == Buffer::input) return fault(block, "writes an input");
  Connection& out = connection(block.rank, peer, block.thread_block->channel);
  for (int i = 0; i < step.count; ++i) {
    const std::int64_t from = step.source.index.at(loops) + i;
    const std::int64_t to = step.destination.index.at(loops) + i;
    const std::int64_t size = size_of(block.rank, step.source.buffer, from);
    if (size < 0 || size != size_of(peer, step.destination.buffer, to))
      return fault(block, "puts a chunk of another size");
    const Held target{peer, block.tile, step.destination.buffer, to};
    Chunk data = look(block, step.source.buffer, from);
    // It may arrive at once, or as late as the token.
    if (below(2) == 0) memory(block.tile, peer, step.destination.buffer, to) = data;
    out.puts.emplace_back(target, std::move(data));
  }
  return true;
}

bool Run::take_token(Block& block, Connection& in) {
  const Message token = std::move(in.messages.front());
  in.messages.pop_front();
  if (!token.is_token) return fault(block, "got a message for a token");
  for (const auto& [to, data] : token.puts) memory(to.tile, to.rank, to.buffer, to.chunk) = data;
  return true;
}

bool Run::read_reduce(Block& block, const Step& step, const plan::LoopValues& loops) {
  if (step.destination.buffer == Buffer::input) return fault(block, "writes its input");
  for (int i = 0; i < step.count; ++i)
    if (is_held(block, step.destination.buffer, step.destination.index.at(loops) + i)) return false;
  for (const int peer : step.peers) {
    for (int i = 0; i < step.count; ++i) {
      const std::int64_t from = step.source.index.at(loops) + i;
      const std::int64_t to = step.destination.index.at(loops) + i;
      if (size_of(peer, step.source.buffer, from) !=
          size_of(block.rank, step.destination.buffer, to))
        return fault(block, "reads a chunk of another size");
      Chunk theirs = memory(block.tile, peer, step.source.buffer, from);
      if (step.source.buffer == Buffer::input) scale(theirs, peer);
      Chunk& mine = memory(block.tile, block.rank, step.destination.buffer, to);
      for (std::size_t e = 0; e < mine.size(); ++e) mine[e] = mine[e] + theirs[e];
    }
  }
  return true;
}

}  // namespace unisono::test::interpreter
