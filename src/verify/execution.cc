#include "verify/execution.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace unisono::verify {

using plan::Step;

Execution::Execution(const plan::Plan& plan, const Options& options, bool record)
    : plan_(plan),
      header_(plan.header),
      options_(options),
      record_(record),
      is_barrier_(plan.header.collective == Collective::barrier),
      contents_(plan.header, options.conditions),
      sums_(contents_.contributions()),
      memory_(plan) {
  std::size_t total = 0;
  for (const plan::RankProgram& program : plan.programs) total += program.thread_blocks.size();
  blocks_.reserve(total);
  for (const plan::RankProgram& program : plan.programs) {
    first_block_.push_back(static_cast<int>(blocks_.size()));
    for (std::size_t i = 0; i < program.thread_blocks.size(); ++i)
      blocks_.emplace_back(program.thread_blocks[i], program.rank, static_cast<int>(i));
  }
  first_block_.push_back(static_cast<int>(blocks_.size()));
  arrived_.resize(plan.programs.size());
  waiting_for_take_.resize(plan.programs.size());
  connect();
  fill_memory();
}

void Execution::connect() {
  struct End {
    std::uint64_t ranks;
    int channel;
    int block;
    bool sends;
  };
  std::vector<End> ends;
  for (int i = 0; i < static_cast<int>(blocks_.size()); ++i) {
    const Block& block = blocks_[static_cast<std::size_t>(i)];
    const plan::ThreadBlock& program = *block.thread_block;
    if (program.send_peer >= 0)
      ends.push_back({pair_key(block.rank, program.send_peer), program.channel, i, true});
    if (program.recv_peer >= 0)
      ends.push_back({pair_key(program.recv_peer, block.rank), program.channel, i, false});
  }
  std::ranges::sort(ends, {}, [](const End& end) { return std::pair(end.ranks, end.channel); });
  const End* previous = nullptr;
  for (const End& end : ends) {
    if (!previous || previous->ranks != end.ranks || previous->channel != end.channel) {
      connections_.emplace_back();
      connections_.back().source_rank = static_cast<int>(end.ranks >> 32);
      connections_.back().destination_rank = static_cast<int>(end.ranks & 0xffffffffu);
      connections_.back().channel = end.channel;
    }
    Connection& connection = connections_.back();
    const int number = static_cast<int>(connections_.size()) - 1;
    Block& block = blocks_[static_cast<std::size_t>(end.block)];
    (end.sends ? connection.sender : connection.receiver) = end.block;
    (end.sends ? block.out : block.in) = number;
    previous = &end;
  }
}

void Execution::fill_memory() {
  cells_.resize(static_cast<std::size_t>(memory_.cells()));
  if (options_.zero_copy) held_.resize(cells_.size());
  for (int rank = 0; rank < header_.ranks; ++rank) {
    const std::int64_t chunks = memory_.chunks(rank, plan::Buffer::input);
    const std::int64_t first = memory_.cell(rank, plan::Buffer::input, 0, 0);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t position = contents_.initial(rank, chunk);
      if (position >= 0)
        cells_[static_cast<std::size_t>(first + chunk)] = {
            position, contents_.adds() ? sums_.raw(contents_.contribution(rank, chunk)) : plain,
            -1};
    }
  }
  if (!is_barrier_) return;
  // What a barrier's messages carry does not matter: only that they were sent.
  std::ranges::fill(cells_, Value{0, plain, -1});
  for (Block& block : blocks_) learn(block, sums_.sets().single(block.rank));
}

std::optional<Failure> Execution::run() {
  for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) wake(block);
  while (!ready_.empty() && !failure_) {
    const int block = ready_.back();
    ready_.pop_back();
    blocks_[static_cast<std::size_t>(block)].queued = false;
    run_block(block);
  }
  if (failure_) return failure_;
  if (!finished())
    explain_deadlock();
  else if (check_left_messages() && check_knowledge())
    check_results();
  return failure_;
}

bool Execution::finished() const {
  return std::ranges::all_of(blocks_,
                             [](const Block& block) { return block.cursor.step() == nullptr; });
}

void Execution::wake(int block) {
  Block& it = blocks_[static_cast<std::size_t>(block)];
  it.wait = Wait::nothing;
  if (it.queued) return;
  it.queued = true;
  ready_.push_back(block);
}

void Execution::run_block(int block) {
  while (!failure_ && blocks_[static_cast<std::size_t>(block)].cursor.step() && ready(block)) {
    if (!execute(block)) return;
    complete_step(block);
  }
}

// Whether the next step can be executed at once; otherwise the block is registered with whatever
// will wake it.
bool Execution::ready(int block) {
  Block& it = blocks_[static_cast<std::size_t>(block)];
  const Step& step = *it.cursor.step();
  if (!dependencies_hold(block)) return false;
  if (step.operation == plan::Operation::barrier) return pass_barrier(block);
  if (plan::receives(step.operation) &&
      (it.in < 0 || connections_[static_cast<std::size_t>(it.in)].waiting() == 0)) {
    it.wait = Wait::message;
    return false;
  }
  if (plan::sends(step.operation) &&
      (it.out < 0 || connections_[static_cast<std::size_t>(it.out)].waiting() >=
                         static_cast<std::size_t>(options_.slots))) {
    it.wait = Wait::slot;
    return false;
  }
  if (options_.zero_copy && plan::writes_destination(step.operation) &&
      step.operation != plan::Operation::put) {
    const std::int64_t first = memory_.cell(
        it.rank, step.destination.buffer, step.destination.index.at(it.cursor.loops()), step.count);
    for (std::int64_t cell = first; cell < first + step.count && first >= 0; ++cell) {
      if (held_[static_cast<std::size_t>(cell)] == 0) continue;
      it.wait = Wait::taken;
      it.wanted_cell = cell;
      waiting_for_take_[static_cast<std::size_t>(it.rank)].push_back(block);
      return false;
    }
  }
  return true;
}

bool Execution::dependencies_hold(int block) {
  Block& it = blocks_[static_cast<std::size_t>(block)];
  const Step& step = *it.cursor.step();
  for (; it.dependency < step.after.size(); ++it.dependency) {
    const plan::Dependency& dependency = step.after[it.dependency];
    const int on = first_block_[static_cast<std::size_t>(it.rank)] + dependency.thread_block;
    Block& other = blocks_[static_cast<std::size_t>(on)];
    const std::int64_t wanted = dependency.steps.at(it.cursor.loops());
    if (other.cursor.number() < wanted) {
      it.wait = Wait::dependency;
      it.wanted_steps = wanted;
      other.waiters.push_back(block);
      return false;
    }
    if (is_barrier_) learn(it, knowledge_after(other, wanted));
  }
  return true;
}

// The last thread block to arrive takes all others over the barrier.
bool Execution::pass_barrier(int block) {
  Block& it = blocks_[static_cast<std::size_t>(block)];
  const auto rank = static_cast<std::size_t>(it.rank);
  if (!std::exchange(it.at_barrier, true)) ++arrived_[rank];
  if (arrived_[rank] < first_block_[rank + 1] - first_block_[rank]) {
    it.wait = Wait::barrier;
    return false;
  }
  arrived_[rank] = 0;
  RankSets::Id knowledge = RankSets::none;
  for (int i = first_block_[rank]; i < first_block_[rank + 1]; ++i)
    knowledge = sums_.sets().unite(knowledge, blocks_[static_cast<std::size_t>(i)].knowledge).set;
  for (int i = first_block_[rank]; i < first_block_[rank + 1]; ++i) {
    Block& other = blocks_[static_cast<std::size_t>(i)];
    other.at_barrier = false;
    if (is_barrier_) learn(other, knowledge);
    if (i == block) continue;
    complete_step(i);
    wake(i);
  }
  return true;
}

void Execution::complete_step(int block) {
  Block& it = blocks_[static_cast<std::size_t>(block)];
  it.cursor.advance();
  it.dependency = 0;
  ++steps_;
  if (it.waiters.empty()) return;
  const std::int64_t done = it.cursor.number();
  std::erase_if(it.waiters, [&](int waiter) {
    if (blocks_[static_cast<std::size_t>(waiter)].wanted_steps > done) return false;
    wake(waiter);
    return true;
  });
}

void Execution::learn(Block& block, RankSets::Id knowledge) {
  const RankSets::Id all = sums_.sets().unite(block.knowledge, knowledge).set;
  if (all == block.knowledge) return;
  block.knowledge = all;
  // Known from the end of the step on that it was learned in: its own effects need no more.
  block.learned.emplace_back(block.cursor.number() + (block.learned.empty() ? 0 : 1), all);
}

// An `after` promises what the other thread block knew then, not what it has learned since.
RankSets::Id Execution::knowledge_after(const Block& block, std::int64_t steps) const {
  const auto later = std::ranges::upper_bound(block.learned, steps, {},
                                              &std::pair<std::int64_t, RankSets::Id>::first);
  return later == block.learned.begin() ? RankSets::none : (later - 1)->second;
}

}  // namespace unisono::verify
