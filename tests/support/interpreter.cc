#include "support/interpreter.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "base/str.h"
#include "plan/chunk_layout.h"
#include "plan/walk.h"

namespace unisono::test {
namespace {

using plan::Buffer;
using plan::Location;
using plan::Operation;
using plan::Step;

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
  return x ^ (x >> 33);
}

// A number and the history of its additions: a + b and b + a have the same, a + (b + c) and
// (a + b) + c do not.
struct Element {
  std::uint64_t sum = 0;
  std::uint64_t history = 0;
  bool operator==(const Element&) const = default;
};
using Chunk = std::vector<Element>;

Element number(std::uint64_t sum) { return {sum, mix(sum)}; }
Element operator+(Element a, Element b) {
  if (a.history > b.history) std::swap(a, b);
  return {a.sum + b.sum, mix(a.history * 3 + b.history)};
}
Element operator*(Element a, std::uint64_t factor) { return number(a.sum * factor); }

struct Unrolled {
  const Step* step;
  plan::LoopValues loops;
};

class Run {
 public:
  Run(const plan::Plan& plan, const RunOptions& options)
      : plan_(plan), header_(plan.header), options_(options), random_(options.seed) {
    for (const plan::RankProgram& program : plan.programs) {
      first_block_.push_back(blocks_.size());
      factors_.push_back(is_reduction(header_.collective) ? random_() | 1 : 1);
      for (const plan::ThreadBlock& thread_block : program.thread_blocks) {
        Block block{.thread_block = &thread_block, .rank = program.rank};
        for (plan::StepCursor at(thread_block.body); at.step(); at.advance())
          block.steps.push_back({at.step(), at.loops()});
        blocks_.push_back(std::move(block));
      }
    }
    first_block_.push_back(blocks_.size());
    choose_counts();
    memory_.resize(static_cast<std::size_t>(options.tiles));
    inputs_.resize(memory_.size());
    for (std::size_t tile = 0; tile < memory_.size(); ++tile) fill(tile);
  }

  // `asleep`: a rank that never starts, -1 for none.
  std::optional<std::string> run(int asleep) {
    for (Block& block : blocks_) block.eagerness = random_();
    std::vector<std::size_t> candidates;
    const auto all = [&] {
      candidates.clear();
      for (std::size_t i = 0; i < blocks_.size(); ++i)
        if (!ended(i) && blocks_[i].rank != asleep) candidates.push_back(i);
    };
    all();
    while (!candidates.empty()) {
      const std::size_t at = choose(candidates);
      const bool progress = try_step(candidates[at]);
      if (fault_) return fault_;
      if (progress) {
        all();
      } else {
        candidates[at] = candidates.back();
        candidates.pop_back();
      }
    }
    return asleep < 0 ? judge() : judge_barrier(asleep);
  }

 private:
  struct Held {
    int rank;
    int tile;
    Buffer buffer;
    std::int64_t chunk;
  };
  struct Message {
    bool is_token = false;
    std::vector<Chunk> data;
    std::vector<Held> held;  // where the data lies, if it was not copied
    bool scale = false;      // it lies in an input: multiply it when reading
    std::vector<std::pair<Held, Chunk>> puts;
  };
  struct Connection {
    std::deque<Message> messages;
    std::vector<std::pair<Held, Chunk>> puts;  // since the last token
  };
  // What a step that has read will write: others may run in between.
  struct Pending {
    std::vector<std::pair<Held, Chunk>> writes;
    Connection* out = nullptr;
    Message message;
  };
  struct Block {
    const plan::ThreadBlock* thread_block;
    int rank;
    std::vector<Unrolled> steps{};
    int tile = 0;
    std::size_t next = 0;
    bool at_barrier = false;
    std::uint64_t eagerness = 0;
    bool has_pending = false;  // it has read for its next step, and not yet written
    Pending pending{};
  };
  using Key = std::pair<Buffer, std::int64_t>;
  using Memory = std::map<std::pair<int, Key>, Chunk>;

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  // Mostly the most eager, so that in some runs a thread block gets as far ahead as it can.
  std::size_t choose(const std::vector<std::size_t>& candidates) {
    if (below(4) == 0) return below(candidates.size());
    std::size_t best = 0;
    for (std::size_t i = 1; i < candidates.size(); ++i)
      if (blocks_[candidates[i]].eagerness > blocks_[candidates[best]].eagerness) best = i;
    return best;
  }

  void choose_counts() {
    counts_.assign(
        static_cast<std::size_t>(header_.ranks) * static_cast<std::size_t>(header_.ranks),
        options_.count);
    if (header_.collective != Collective::all_to_all_v) return;
    for (std::int64_t& count : counts_)
      count = static_cast<std::int64_t>(below(static_cast<std::uint64_t>(options_.count) + 1));
    if (!header_.in_place) return;
    for (int a = 0; a < header_.ranks; ++a)
      for (int b = 0; b < a; ++b) pair_count(a, b) = pair_count(b, a);
  }
  std::int64_t& pair_count(int source, int destination) {
    return counts_[static_cast<std::size_t>(source) * static_cast<std::size_t>(header_.ranks) +
                   static_cast<std::size_t>(destination)];
  }

  // Elements of a chunk; -1 if nothing says how many.
  std::int64_t size_of(int rank, Buffer buffer, std::int64_t chunk) {
    const std::int64_t block = chunk / header_.chunks_per_block;
    std::int64_t count = options_.count;
    if (header_.collective == Collective::all_to_all_v) {
      if (buffer == Buffer::scratch) return -1;
      const int other = static_cast<int>(block);
      count = buffer == Buffer::input ? pair_count(rank, other) : pair_count(other, rank);
    }
    return plan::ChunkLayout::of(count, header_.chunks_per_block, 8)
        .elements(chunk % header_.chunks_per_block);
  }

  Chunk& memory(int tile, int rank, Buffer buffer, std::int64_t chunk) {
    const plan::Storage storage = plan::storage_of(header_, rank, buffer, chunk);
    return memory_[static_cast<std::size_t>(tile)][{rank, {storage.buffer, storage.chunk}}];
  }

  bool has_input(int rank) const {
    const bool root_only =
        header_.collective == Collective::broadcast || header_.collective == Collective::scatter;
    return !root_only || rank == header_.root;
  }

  void fill(std::size_t tile) {
    const int t = static_cast<int>(tile);
    for (const plan::RankProgram& program : plan_.programs) {
      const int rank = program.rank;
      const std::int64_t chunks = header_.chunks_per_block;
      const auto poison = [&](Buffer buffer, std::int64_t blocks) {
        for (std::int64_t i = 0; i < blocks * chunks; ++i) {
          Chunk& chunk = memory(t, rank, buffer, i);
          chunk.resize(
              static_cast<std::size_t>(std::max<std::int64_t>(size_of(rank, buffer, i), 0)));
          for (Element& element : chunk) element = number(random_());
        }
      };
      poison(Buffer::scratch, program.scratch_blocks);
      poison(Buffer::output, plan::output_blocks_of(header_, rank));
      poison(Buffer::input, plan::input_blocks_of(header_, rank));
      if (!has_input(rank)) continue;
      std::vector<Chunk>& copy = inputs_[tile][rank];
      for (std::int64_t i = 0; i < plan::input_blocks_of(header_, rank) * chunks; ++i)
        copy.push_back(memory(t, rank, Buffer::input, i));
    }
  }

  bool ended(std::size_t block) const { return blocks_[block].tile == options_.tiles; }

  bool fault(const Block& block, const std::string& what) {
    fault_ = str("rank ", block.rank, " thread block ",
                 &block - &blocks_[first_block_[static_cast<std::size_t>(block.rank)]], " step ",
                 block.next, ": ", what);
    return false;
  }

  bool has_reached(const Block& block, int tile, std::int64_t steps) const {
    return block.tile > tile ||
           (block.tile == tile && static_cast<std::int64_t>(block.next) >= steps);
  }

  void finish_step(Block& block) {
    ++block.next;
    skip_tiles(block);
  }
  void skip_tiles(Block& block) const {
    if (block.next < block.steps.size()) return;
    block.next = 0;
    ++block.tile;
  }

  // Whether anything happened.
  bool try_step(std::size_t index) {
    Block& block = blocks_[index];
    if (block.steps.empty()) {
      skip_tiles(block);
      return true;
    }
    const Unrolled& now = block.steps[block.next];
    const auto rank = static_cast<std::size_t>(block.rank);
    for (const plan::Dependency& on : now.step->after)
      if (!has_reached(blocks_[first_block_[rank] + static_cast<std::size_t>(on.thread_block)],
                       block.tile, on.steps.at(now.loops)))
        return false;
    if (now.step->operation == Operation::barrier) return try_barrier(block);
    if (std::exchange(block.has_pending, false)) {
      write(std::exchange(block.pending, {}));
      finish_step(block);
      return true;
    }
    if (!execute(block, *now.step, now.loops)) return false;
    block.has_pending = true;
    return true;
  }

  void write(Pending pending) {
    for (const auto& [to, data] : pending.writes)
      memory(to.tile, to.rank, to.buffer, to.chunk) = data;
    if (!pending.out) return;
    for (const Held& held : pending.message.held) hold(held, 1);
    pending.out->messages.push_back(std::move(pending.message));
  }

  bool try_barrier(Block& block) {
    const bool is_new = !std::exchange(block.at_barrier, true);
    const auto rank = static_cast<std::size_t>(block.rank);
    for (std::size_t i = first_block_[rank]; i < first_block_[rank + 1]; ++i)
      if (!blocks_[i].at_barrier || blocks_[i].tile != block.tile) return is_new;
    for (std::size_t i = first_block_[rank]; i < first_block_[rank + 1]; ++i) {
      blocks_[i].at_barrier = false;
      finish_step(blocks_[i]);
    }
    return true;
  }

  Connection& connection(int source, int destination, int channel) {
    return connections_[{source, destination, channel}];
  }

  // How a rank sees its own memory: multiplied when it reads an input.
  Chunk look(const Block& block, Buffer buffer, std::int64_t chunk) {
    Chunk data = memory(block.tile, block.rank, buffer, chunk);
    if (buffer == Buffer::input) scale(data, block.rank);
    return data;
  }
  void scale(Chunk& data, int rank) {
    if (!is_reduction(header_.collective)) return;
    for (Element& element : data) element = element * factors_[static_cast<std::size_t>(rank)];
  }

  bool is_held(const Block& block, Buffer buffer, std::int64_t chunk) {
    const plan::Storage storage = plan::storage_of(header_, block.rank, buffer, chunk);
    const auto found = held_.find({block.tile, block.rank, storage.buffer, storage.chunk});
    return found != held_.end() && found->second > 0;
  }
  void hold(const Held& held, int difference) {
    const plan::Storage storage = plan::storage_of(header_, held.rank, held.buffer, held.chunk);
    held_[{held.tile, held.rank, storage.buffer, storage.chunk}] += difference;
  }

  std::int64_t bytes(int rank, const Location& location, int count, const plan::LoopValues& loops) {
    std::int64_t elements = 0;
    for (int i = 0; i < count; ++i)
      elements +=
          std::max<std::int64_t>(0, size_of(rank, location.buffer, location.index.at(loops) + i));
    return elements * 8;
  }

  bool execute(Block& block, const Step& step, const plan::LoopValues& loops) {
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

  bool put(Block& block, const Step& step, const plan::LoopValues& loops) {
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

  bool take_token(Block& block, Connection& in) {
    const Message token = std::move(in.messages.front());
    in.messages.pop_front();
    if (!token.is_token) return fault(block, "got a message for a token");
    for (const auto& [to, data] : token.puts) memory(to.tile, to.rank, to.buffer, to.chunk) = data;
    return true;
  }

  bool read_reduce(Block& block, const Step& step, const plan::LoopValues& loops) {
    if (step.destination.buffer == Buffer::input) return fault(block, "writes its input");
    for (int i = 0; i < step.count; ++i)
      if (is_held(block, step.destination.buffer, step.destination.index.at(loops) + i))
        return false;
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

  // What rank `rank` must have in output chunk `chunk`, the history aside.
  std::optional<Chunk> wanted(std::size_t tile, int rank, std::int64_t chunk) {
    const auto& inputs = inputs_[tile];
    const std::int64_t chunks = header_.chunks_per_block;
    const auto input = [&](int source, std::int64_t at) {
      return inputs.at(source)[static_cast<std::size_t>(at)];
    };
    const auto sum = [&](std::int64_t at) {
      Chunk total(input(0, at).size());
      for (int source = 0; source < header_.ranks; ++source)
        for (std::size_t e = 0; e < total.size(); ++e)
          total[e].sum += input(source, at)[e].sum * factors_[static_cast<std::size_t>(source)];
      return total;
    };
    switch (header_.collective) {
      case Collective::all_reduce:
        return sum(chunk);
      case Collective::reduce:
        if (rank == header_.root) return sum(chunk);
        return std::nullopt;
      case Collective::reduce_scatter:
        return sum(rank * chunks + chunk);
      case Collective::all_gather:
        return input(static_cast<int>(chunk / chunks), chunk % chunks);
      case Collective::gather:
        if (rank == header_.root) return input(static_cast<int>(chunk / chunks), chunk % chunks);
        return std::nullopt;
      case Collective::broadcast:
        return input(header_.root, chunk);
      case Collective::scatter:
        return input(header_.root, rank * chunks + chunk);
      case Collective::all_to_all:
      case Collective::all_to_all_v:
        return input(static_cast<int>(chunk / chunks), rank * chunks + chunk % chunks);
      default:
        return std::nullopt;
    }
  }

  std::optional<std::string> judge() {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (ended(i)) continue;
      fault(blocks_[i], "never goes on");
      return fault_;
    }
    for (const auto& [ends, connection] : connections_)
      if (!connection.messages.empty() || !connection.puts.empty())
        return str("messages are left from rank ", std::get<0>(ends), " to rank ",
                   std::get<1>(ends));
    for (std::size_t tile = 0; tile < memory_.size(); ++tile)
      if (auto wrong = judge_results(tile)) return wrong;
    return std::nullopt;
  }

  std::optional<std::string> judge_results(std::size_t tile) {
    const int t = static_cast<int>(tile);
    for (int rank = 0; rank < header_.ranks; ++rank) {
      const std::int64_t chunks =
          std::int64_t{plan::output_blocks_of(header_, rank)} * header_.chunks_per_block;
      for (std::int64_t i = 0; i < chunks; ++i) {
        const std::optional<Chunk> right = wanted(tile, rank, i);
        if (!right) continue;
        const Chunk& got = memory(t, rank, Buffer::output, i);
        if (!std::ranges::equal(*right, got, {}, &Element::sum, &Element::sum))
          return str("rank ", rank, " has a wrong result in output chunk ", i);
        if (header_.collective == Collective::all_reduce && got != memory(t, 0, Buffer::output, i))
          return str("rank ", rank, " added output chunk ", i, " in another order than rank 0");
      }
      if (header_.in_place || !has_input(rank)) continue;
      const std::vector<Chunk>& before = inputs_[tile][rank];
      for (std::size_t i = 0; i < before.size(); ++i)
        if (memory(t, rank, Buffer::input, static_cast<std::int64_t>(i)) != before[i])
          return str("rank ", rank, "'s input was written");
    }
    return std::nullopt;
  }

  // While one rank has not started, no other may have ended.
  std::optional<std::string> judge_barrier(int asleep) {
    for (int rank = 0; rank < header_.ranks; ++rank) {
      if (rank == asleep) continue;
      bool all_ended = true;
      for (std::size_t i = first_block_[static_cast<std::size_t>(rank)];
           i < first_block_[static_cast<std::size_t>(rank) + 1]; ++i)
        all_ended = all_ended && (ended(i) || blocks_[i].tile > 0);
      if (all_ended)
        return str("rank ", rank, " left the barrier before rank ", asleep, " came to it");
    }
    return std::nullopt;
  }

  const plan::Plan& plan_;
  const plan::Header& header_;
  const RunOptions& options_;
  std::mt19937_64 random_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> first_block_;
  std::vector<std::uint64_t> factors_;
  std::vector<std::int64_t> counts_;
  std::vector<Memory> memory_;                             // by tile
  std::vector<std::map<int, std::vector<Chunk>>> inputs_;  // by tile, as they were
  std::map<std::tuple<int, int, int>, Connection> connections_;
  std::map<std::tuple<int, int, Buffer, std::int64_t>, int> held_;
  std::optional<std::string> fault_;
};

}  // namespace

std::optional<std::string> run_once(const plan::Plan& plan, const RunOptions& options) {
  if (auto wrong = Run(plan, options).run(-1)) return wrong;
  if (plan.header.collective != Collective::barrier) return std::nullopt;
  for (int asleep = 0; asleep < plan.header.ranks; ++asleep)
    if (auto wrong = Run(plan, options).run(asleep)) return wrong;
  return std::nullopt;
}

std::optional<std::string> find_fault(const plan::Plan& plan, int runs, std::uint64_t seed,
                                      int least_slots) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  const std::int64_t chunks = plan.header.chunks_per_block;
  for (int i = 0; i < runs; ++i) {
    RunOptions options;
    options.seed = random();
    options.slots = least_slots + (i % 2 == 0 ? 0 : static_cast<int>(below(8)));
    options.tiles = 1 + static_cast<int>(below(2));
    options.zero_copy = below(2) == 0;
    // Up to one element a chunk tells every chunk from those before it; more makes them ragged.
    options.count = i % 3 == 0 ? chunks : 1 + below(below(2) == 0 ? chunks : 4 * chunks);
    if (auto wrong = run_once(plan, options))
      return str(*wrong, " (seed ", options.seed, ", slots ", options.slots, ", tiles ",
                 options.tiles, options.zero_copy ? ", zero copy" : "", ", count ", options.count,
                 ")");
  }
  return std::nullopt;
}

}  // namespace unisono::test
