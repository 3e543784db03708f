#include "plan/exchange.h"

#include <algorithm>
#include <deque>

#include "plan/walk.h"

namespace unisono::plan {
namespace {

constexpr std::size_t slots = 2;
constexpr std::int64_t most_steps = 1 << 14;

// Runs all ranks' programs in one order that two slots allow; all of them come to the same.
class Execution {
 public:
  Execution(const Plan& plan, Contents& contents)
      : header_(plan.header), contents_(contents), ranks_(plan.programs.size()) {
    out_.outputs.resize(plan.programs.size());
    for (std::size_t rank = 0; rank < plan.programs.size(); ++rank)
      for (const ThreadBlock& block : plan.programs[rank].thread_blocks)
        ranks_[rank].blocks.push_back({&block, StepCursor(block.body)});
  }

  std::optional<Exchange> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        for (Block& block : ranks_[rank].blocks)
          while (block.cursor.step() != nullptr && go(static_cast<int>(rank), block)) moved = true;
    }
    for (const Rank& rank : ranks_)
      for (const Block& block : rank.blocks)
        if (block.cursor.step() != nullptr) return std::nullopt;
    return std::move(out_);
  }

 private:
  struct Block {
    const ThreadBlock* block;
    StepCursor cursor;
  };
  struct Rank {
    std::vector<Block> blocks;
    std::map<std::pair<Buffer, std::int64_t>, int> held;  // of what was written
  };
  using Message = Exchange::Message;

  // Whether the block's step could be done.
  bool go(int rank, Block& at) {
    const Step& step = *at.cursor.step();
    const LoopValues& loops = at.cursor.loops();
    for (const Dependency& after : step.after)
      if (ranks_[static_cast<std::size_t>(rank)]
              .blocks[static_cast<std::size_t>(after.thread_block)]
              .cursor.number() < after.steps.at(loops))
        return false;
    auto& out = queues_[{rank, at.block->send_peer}];
    auto& in = queues_[{at.block->recv_peer, rank}];
    if (sends(step.operation) && out.size() == slots) return false;
    if (receives(step.operation) && in.empty()) return false;
    Message value(static_cast<std::size_t>(step.count));
    if (receives(step.operation)) {
      value = std::move(in.front());
      in.pop_front();
    }
    for (int i = 0; i < step.count; ++i) {
      int& content = value[static_cast<std::size_t>(i)];
      if (reads_source(step.operation)) {
        const int source = read(rank, step.source, loops, i);
        content = receives(step.operation) ? contents_.sum(content, source) : source;
      }
      if (step.operation == Operation::reduce)
        content = contents_.sum(content, read(rank, step.destination, loops, i));
      if (writes_destination(step.operation)) write(rank, step.destination, loops, i, content);
    }
    if (sends(step.operation)) {
      out_.sent[{rank, at.block->send_peer}].push_back(value);
      out.push_back(std::move(value));
    }
    at.cursor.advance();
    return true;
  }

  Storage storage(int rank, const Location& location, const LoopValues& loops, int i) const {
    return storage_of(header_, rank, location.buffer, location.index.at(loops) + i);
  }

  int read(int rank, const Location& location, const LoopValues& loops, int i) {
    const Storage at = storage(rank, location, loops, i);
    const auto& held = ranks_[static_cast<std::size_t>(rank)].held;
    const auto found = held.find({at.buffer, at.chunk});
    if (found != held.end()) return found->second;
    return contents_.initial(rank, at,
                             location.buffer == Buffer::input || !is_reduction(header_.collective));
  }

  void write(int rank, const Location& location, const LoopValues& loops, int i, int content) {
    const Storage at = storage(rank, location, loops, i);
    ranks_[static_cast<std::size_t>(rank)].held[{at.buffer, at.chunk}] = content;
    if (at.buffer == storage_of(header_, rank, Buffer::output, 0).buffer)
      out_.outputs[static_cast<std::size_t>(rank)][at.chunk] = content;
  }

  const Header& header_;
  Contents& contents_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, std::deque<Message>> queues_;  // by sender and receiver
  Exchange out_;
};

bool is_compared(const Plan& plan) {
  using enum Operation;
  if (plan.header.channels != 1) return false;
  std::int64_t steps = 0;
  for (const RankProgram& program : plan.programs)
    for (const ThreadBlock& block : program.thread_blocks) {
      steps += unrolled_steps(block.body);
      if (steps > most_steps) return false;
      for (StepCursor cursor(block.body); cursor.step() != nullptr; cursor.advance())
        if (is_one_sided(cursor.step()->operation) || cursor.step()->operation == barrier)
          return false;
    }
  return true;
}

}  // namespace

int Contents::number_of(const Content& content) {
  return numbers_.emplace(content, static_cast<int>(numbers_.size())).first->second;
}

int Contents::initial(int rank, Storage storage, bool is_raw) {
  return number_of(
      {is_raw ? Content::Kind::raw : Content::Kind::plain, storage.buffer, rank, storage.chunk});
}

int Contents::sum(int a, int b) {
  return number_of({Content::Kind::sum, Buffer::input, std::min(a, b), std::max(a, b)});
}

std::optional<Exchange> exchange_of(const Plan& plan, Contents& contents) {
  if (!is_compared(plan)) return std::nullopt;
  return Execution(plan, contents).run();
}

}  // namespace unisono::plan
