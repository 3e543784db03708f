#include "support/random_plan.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "plan/walk.h"

namespace unisono::test {
namespace {

using namespace plan;

class Generator {
 public:
  Generator(std::uint64_t seed, const RandomPlanOptions& options)
      : random_(seed), options_(options) {}

  Plan make() {
    make_header();
    // A step may touch a peer's scratch, so all sizes come first.
    for (int rank = 0; rank < plan_.header.ranks; ++rank)
      plan_.programs.push_back({.rank = rank, .scratch_blocks = up_to(3), .thread_blocks = {}});
    for (RankProgram& program : plan_.programs) fill(program);
    plan_.header.max_step_count = max_step_count(plan_);
    return std::move(plan_);
  }

 private:
  int up_to(int most) { return static_cast<int>(random_() % static_cast<unsigned>(most + 1)); }
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(unsigned n) { return random_() % n == 0; }

  void make_header() {
    Header& it = plan_.header;
    const std::vector<std::string> names{"ring", "a", "tree_2.b+c-d", "0", "two_shot_all_reduce"};
    it.name = names[random_() % names.size()];
    it.collective = static_cast<Collective>(up_to(collective_count - 1));
    it.protocol = static_cast<Protocol>(up_to(protocol_count - 1));
    it.ranks = 1 + up_to(options_.max_ranks - 1);
    if (has_root(it.collective)) it.root = up_to(it.ranks - 1);
    it.channels = 1 + up_to(3);
    it.in_place = one_in(2);
    it.chunks_per_block = 1 + up_to(8);
    it.input_blocks = up_to(4);
    it.output_blocks = up_to(4);
    set_blocks(it);
    if (one_in(2)) it.min_bytes = random_() >> (1 + up_to(60));
    if (one_in(2)) it.max_bytes = it.min_bytes + 1 + static_cast<std::uint64_t>(up_to(1 << 20));
    it.max_bytes = std::min(it.max_bytes, std::uint64_t{INT64_MAX});
  }

  void fill(RankProgram& program) {
    std::set<std::pair<int, int>> senders;
    std::set<std::pair<int, int>> receivers;
    for (int i = up_to(options_.max_thread_blocks); i > 0; --i) {
      ThreadBlock block{.channel = up_to(plan_.header.channels - 1)};
      block.send_peer = peer(program.rank, block.channel, senders);
      block.recv_peer = peer(program.rank, block.channel, receivers);
      program.thread_blocks.push_back(block);
    }
    program_ = &program;
    // Dependencies count the steps of any thread block, so they come when all have theirs.
    for (ThreadBlock& block : program.thread_blocks) fill(block, block.body, 0);
    for (std::size_t i = 0; i < program.thread_blocks.size(); ++i)
      add_dependencies(static_cast<int>(i), program.thread_blocks[i].body, 0);
  }

  int peer(int rank, int channel, std::set<std::pair<int, int>>& taken) {
    const int peer = up_to(plan_.header.ranks - 1);
    if (peer == rank || !taken.insert({peer, channel}).second) return -1;
    return peer;
  }

  void fill(const ThreadBlock& block, Body& body, std::size_t depth) {
    for (int i = up_to(options_.max_nodes - 1) + (depth > 0 ? 1 : 0); i > 0; --i) {
      if (depth < max_loop_depth && one_in(4)) {
        const bool is_long = options_.with_long_loops && one_in(6);
        const int most = is_long ? (depth == 0 ? 3000 : 200) : 5;
        Loop loop{.count = 1 + up_to(most)};
        counts_[depth] = loop.count;
        fill(block, loop.body, depth + 1);
        body.emplace_back(std::move(loop));
      } else {
        body.emplace_back(step(block, depth));
      }
    }
  }

  Step step(const ThreadBlock& block, std::size_t depth) {
    while (true) {
      Step it{.operation = static_cast<Operation>(up_to(operation_count - 1))};
      const bool to_peer = sends(it.operation) || it.operation == Operation::put;
      if (to_peer && block.send_peer < 0) continue;
      if (receives(it.operation) && block.recv_peer < 0) continue;
      if (it.operation == Operation::read_reduce) add_peers(it);
      if (it.operation == Operation::read_reduce && it.peers.empty()) continue;
      if (reads_source(it.operation) || writes_destination(it.operation))
        if (one_in(3)) it.count = 1 + up_to(2);
      const int owner = it.operation == Operation::put ? block.send_peer : program_->rank;
      const std::vector<int> own{program_->rank};
      const bool found =
          (!reads_source(it.operation) ||
           place(it.source, it.count, it.peers.empty() ? own : it.peers, depth)) &&
          (!writes_destination(it.operation) || place(it.destination, it.count, {owner}, depth));
      if (found) return it;
    }
  }

  void add_peers(Step& step) {
    for (int peer = 0; peer < plan_.header.ranks; ++peer)
      if (peer != program_->rank && one_in(2)) step.peers.push_back(peer);
    std::shuffle(step.peers.begin(), step.peers.end(), random_);
  }

  std::int64_t chunks_of(int rank, Buffer buffer) const {
    const std::int64_t blocks = buffer == Buffer::input ? input_blocks_of(plan_.header, rank)
                                : buffer == Buffer::output
                                    ? output_blocks_of(plan_.header, rank)
                                    : plan_.programs[static_cast<std::size_t>(rank)].scratch_blocks;
    return blocks * plan_.header.chunks_per_block;
  }

  // Some place with room for `count` chunks at each of `owners`; false if the buffer has none.
  bool place(Location& out, int count, const std::vector<int>& owners, std::size_t depth) {
    out.buffer = static_cast<Buffer>(up_to(2));
    std::int64_t chunks = chunks_of(owners.front(), out.buffer);
    for (int owner : owners) chunks = std::min(chunks, chunks_of(owner, out.buffer));
    if (chunks < count) return false;
    out.index = index(chunks - count, depth);
    return true;
  }

  // Any index whose values are all within 0 .. most.
  Index index(std::int64_t most, std::size_t depth) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      Index it = between(-3, most + 3);
      for (std::size_t d = 0; d < depth; ++d)
        if (!one_in(3)) it.coefficient[d] = between(-3, 3);
      if (!one_in(3)) it.modulus = between(1, most + 2);
      if (one_in(3)) it.scale = between(-3, 3);
      if (one_in(3)) it.offset = between(-most, 2 * most + 1);
      if (stays_within(it, most, depth)) return it;
    }
    return between(0, most);
  }

  bool stays_within(const Index& it, std::int64_t most, std::size_t depth) const {
    LoopValues loops{};
    const std::int64_t outer = depth > 0 ? counts_[0] : 1;
    const std::int64_t inner = depth > 1 ? counts_[1] : 1;
    for (loops[0] = 0; loops[0] < outer; ++loops[0])
      for (loops[1] = 0; loops[1] < inner; ++loops[1])
        if (it.at(loops) < 0 || it.at(loops) > most) return false;
    return true;
  }

  void add_dependencies(int own, Body& body, std::size_t depth) {
    for (Node& node : body) {
      if (Loop* loop = std::get_if<Loop>(&node)) {
        counts_[depth] = loop->count;
        add_dependencies(own, loop->body, depth + 1);
        continue;
      }
      while (one_in(4)) {
        const int other = up_to(static_cast<int>(program_->thread_blocks.size()) - 1);
        if (other == own) continue;
        const Body& awaited = program_->thread_blocks[static_cast<std::size_t>(other)].body;
        std::get<Step>(node).after.push_back({other, index(unrolled_steps(awaited), depth)});
      }
    }
  }

  std::mt19937_64 random_;
  RandomPlanOptions options_;
  Plan plan_;
  RankProgram* program_ = nullptr;
  LoopValues counts_{};
};

}  // namespace

plan::Plan random_plan(std::uint64_t seed, const RandomPlanOptions& options) {
  return Generator(seed, options).make();
}

}  // namespace unisono::test
