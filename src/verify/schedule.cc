#include "verify/schedule.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/try.h"
#include "plan/check.h"
#include "plan/walk.h"
#include "verify/steps.h"

namespace unisono::verify {
namespace {

using plan::Step;

// One direction between two ranks on a channel: its sending and its receiving steps so far.
struct Connection {
  std::vector<std::size_t> sent;
  std::vector<std::size_t> taken;
};

struct Block {
  Block(const plan::ThreadBlock& program, std::size_t first)
      : cursor(program.body), first_step(first) {}
  plan::StepCursor cursor;
  std::size_t first_step;  // its index in Schedule::steps
  std::size_t first_of_rank = 0;
  std::size_t blocks_of_rank = 0;
  Connection* in = nullptr;
  Connection* out = nullptr;
  std::optional<std::int64_t> at_barrier;  // since when
};

class Timing {
 public:
  Timing(const plan::Plan& plan, int slots) : plan_(plan), slots_(slots) { lay_out(); }

  Result<Schedule> run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (Block& block : blocks_)
        while (advance(block)) moved = true;
    }
    for (const Block& block : blocks_)
      if (block.cursor.step() != nullptr) return stuck(block);
    list_messages();
    return std::move(out_);
  }

 private:
  void lay_out() {
    for (const plan::RankProgram& program : plan_.programs) {
      const std::size_t first = blocks_.size();
      for (std::size_t i = 0; i < program.thread_blocks.size(); ++i) {
        const plan::ThreadBlock& thread_block = program.thread_blocks[i];
        Block& block = blocks_.emplace_back(thread_block, out_.steps.size());
        block.first_of_rank = first;
        block.blocks_of_rank = program.thread_blocks.size();
        block.in = connection(thread_block.recv_peer, program.rank, thread_block.channel);
        block.out = connection(program.rank, thread_block.send_peer, thread_block.channel);
        for (plan::StepCursor cursor(thread_block.body); cursor.step() != nullptr; cursor.advance())
          out_.steps.push_back({.rank = program.rank,
                                .thread_block = static_cast<int>(i),
                                .number = cursor.number(),
                                .operation = cursor.step()->operation,
                                .text = step_text(thread_block, *cursor.step(), cursor.loops())});
      }
    }
  }

  Connection* connection(int sender, int receiver, int channel) {
    if (sender < 0 || receiver < 0) return nullptr;
    return &connections_[{sender, receiver, channel}];
  }

  std::int64_t done(const Block& block) const { return block.cursor.number(); }

  // When the block's next step starts; nothing while that cannot be told yet.
  std::optional<std::int64_t> start_of(const Block& block) const {
    const Step& step = *block.cursor.step();
    const std::size_t index = block.first_step + static_cast<std::size_t>(done(block));
    std::int64_t start = done(block) > 0 ? out_.steps[index - 1].end : 0;
    for (const plan::Dependency& dependency : step.after) {
      const Block& other =
          blocks_[block.first_of_rank + static_cast<std::size_t>(dependency.thread_block)];
      const std::int64_t needed = dependency.steps.at(block.cursor.loops());
      if (done(other) < needed) return std::nullopt;
      if (needed > 0)
        start = std::max(start,
                         out_.steps[other.first_step + static_cast<std::size_t>(needed) - 1].end);
    }
    if (plan::receives(step.operation)) {
      const std::size_t message = block.in->taken.size();
      if (block.in->sent.size() <= message) return std::nullopt;
      start = std::max(start, out_.steps[block.in->sent[message]].end + 1);
    }
    const auto slots = static_cast<std::size_t>(slots_);
    if (plan::sends(step.operation) && block.out->sent.size() >= slots) {
      const std::size_t before = block.out->sent.size() - slots;
      if (block.out->taken.size() <= before) return std::nullopt;
      start = std::max(start, out_.steps[block.out->taken[before]].end);
    }
    return start;
  }

  bool advance(Block& block) {
    if (block.cursor.step() == nullptr || block.at_barrier) return false;
    const std::optional<std::int64_t> start = start_of(block);
    if (!start) return false;
    if (block.cursor.step()->operation == plan::Operation::barrier) {
      block.at_barrier = start;
      leave_barrier(block);
    } else {
      complete(block, *start);
    }
    return true;
  }

  // The last thread block of a rank to arrive lets all of them go on.
  void leave_barrier(const Block& arrived) {
    const auto first = blocks_.begin() + static_cast<std::ptrdiff_t>(arrived.first_of_rank);
    const auto last = first + static_cast<std::ptrdiff_t>(arrived.blocks_of_rank);
    if (!std::all_of(first, last, [](const Block& block) { return block.at_barrier; })) return;
    std::int64_t start = 0;
    for (auto block = first; block != last; ++block) start = std::max(start, *block->at_barrier);
    for (auto block = first; block != last; ++block) {
      block->at_barrier.reset();
      complete(*block, start);
    }
  }

  void complete(Block& block, std::int64_t start) {
    const std::size_t index = block.first_step + static_cast<std::size_t>(done(block));
    TimedStep& step = out_.steps[index];
    step.start = start;
    step.end = start + 1;
    out_.duration = std::max(out_.duration, step.end);
    if (plan::receives(step.operation)) block.in->taken.push_back(index);
    if (plan::sends(step.operation)) block.out->sent.push_back(index);
    block.cursor.advance();
  }

  void list_messages() {
    for (const auto& [key, connection] : connections_)
      for (std::size_t i = 0; i < connection.taken.size(); ++i) {
        const std::size_t sender = connection.sent[i];
        const std::int64_t sent = out_.steps[sender].end;
        out_.messages.push_back({sender, connection.taken[i], sent, sent + 1});
      }
    std::sort(out_.messages.begin(), out_.messages.end(),
              [](const Arrow& a, const Arrow& b) { return a.receiver < b.receiver; });
  }

  Error stuck(const Block& block) const {
    const TimedStep& step = out_.steps[block.first_step + static_cast<std::size_t>(done(block))];
    return misuse("plan ", plan_.header.name, " deadlocks with ", slots_, " slots: rank ",
                  step.rank, ", thread block ", step.thread_block, " cannot pass step ",
                  step.number, ", ", step.text,
                  "; run `unisono plan verify` to see the counterexample trace");
  }

  const plan::Plan& plan_;
  int slots_;
  std::vector<Block> blocks_;
  std::map<std::array<int, 3>, Connection> connections_;  // sender, receiver, channel
  Schedule out_;
};

}  // namespace

Result<Schedule> make_schedule(const plan::Plan& plan, int slots) {
  UNISONO_TRY(plan::check(plan, plan::format_limits()));
  if (slots < 1) return misuse("slots is ", slots, "; a connection needs at least 1");
  std::int64_t steps = 0;
  for (const plan::RankProgram& program : plan.programs)
    for (const plan::ThreadBlock& thread_block : program.thread_blocks)
      steps += plan::unrolled_steps(thread_block.body);
  if (steps > max_scheduled_steps)
    return misuse("plan ", plan.header.name, " has ", steps, " steps on ", plan.header.ranks,
                  " ranks; a schedule can have at most ", max_scheduled_steps);
  return Timing(plan, slots).run();
}

}  // namespace unisono::verify
