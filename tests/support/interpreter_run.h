// One run of the interpreter: its state, and what its three files share. interpreter.cc sets it up
// and chooses who goes on, interpreter_steps.cc executes steps, interpreter_results.cc judges.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "plan/walk.h"
#include "support/interpreter.h"

namespace unisono::test::interpreter {

using plan::Buffer;
using plan::Location;
using plan::Operation;
using plan::Step;

// A number and the history of its additions: a + b and b + a have the same, a + (b + c) and
// (a + b) + c do not.
struct Element {
  std::uint64_t sum = 0;
  std::uint64_t history = 0;
  bool operator==(const Element&) const = default;
};
using Chunk = std::vector<Element>;

Element number(std::uint64_t sum);
Element operator+(Element a, Element b);
Element operator*(Element a, std::uint64_t factor);

struct Unrolled {
  const Step* step;
  plan::LoopValues loops;
};

class Run {
 public:
  Run(const plan::Plan& plan, const RunOptions& options);

  // `asleep`: a rank that never starts, -1 for none.
  std::optional<std::string> run(int asleep);

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
  std::size_t choose(const std::vector<std::size_t>& candidates);

  void choose_counts();
  std::int64_t& pair_count(int source, int destination) {
    return counts_[static_cast<std::size_t>(source) * static_cast<std::size_t>(header_.ranks) +
                   static_cast<std::size_t>(destination)];
  }

  // Elements of a chunk; -1 if nothing says how many.
  std::int64_t size_of(int rank, Buffer buffer, std::int64_t chunk);

  Chunk& memory(int tile, int rank, Buffer buffer, std::int64_t chunk) {
    const plan::Storage storage = plan::storage_of(header_, rank, buffer, chunk);
    return memory_[static_cast<std::size_t>(tile)][{rank, {storage.buffer, storage.chunk}}];
  }

  bool has_input(int rank) const {
    const bool root_only =
        header_.collective == Collective::broadcast || header_.collective == Collective::scatter;
    return !root_only || rank == header_.root;
  }

  void fill(std::size_t tile);

  bool ended(std::size_t block) const { return blocks_[block].tile == options_.tiles; }

  bool fault(const Block& block, const std::string& what);

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
  bool try_step(std::size_t index);
  void write(Pending pending);
  bool try_barrier(Block& block);

  Connection& connection(int source, int destination, int channel) {
    return connections_[{source, destination, channel}];
  }

  // How a rank sees its own memory: multiplied when it reads an input.
  Chunk look(const Block& block, Buffer buffer, std::int64_t chunk);
  void scale(Chunk& data, int rank);
  bool is_held(const Block& block, Buffer buffer, std::int64_t chunk);
  void hold(const Held& held, int difference);
  std::int64_t bytes(int rank, const Location& location, int count, const plan::LoopValues& loops);
  bool execute(Block& block, const Step& step, const plan::LoopValues& loops);
  bool put(Block& block, const Step& step, const plan::LoopValues& loops);
  bool take_token(Block& block, Connection& in);
  bool read_reduce(Block& block, const Step& step, const plan::LoopValues& loops);

  // What rank `rank` must have in output chunk `chunk`, the history aside.
  std::optional<Chunk> wanted(std::size_t tile, int rank, std::int64_t chunk);
  std::optional<std::string> judge();
  std::optional<std::string> judge_results(std::size_t tile);

  // While one rank has not started, no other may have ended.
  std::optional<std::string> judge_barrier(int asleep);

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

}  // namespace unisono::test::interpreter
