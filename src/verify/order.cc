#include "verify/order.h"

#include <algorithm>
#include <utility>

namespace unisono::verify {

using plan::Step;

Order::Order(const std::vector<const plan::RankProgram*>& programs, Ordering ordering)
    : ordering_(ordering) {
  std::size_t width = 0;
  for (const plan::RankProgram* program : programs) width += program->thread_blocks.size();
  blocks_.reserve(width);
  for (const plan::RankProgram* program : programs) {
    const std::size_t first = blocks_.size();
    for (std::size_t i = 0; i < program->thread_blocks.size(); ++i) {
      const plan::ThreadBlock& thread_block = program->thread_blocks[i];
      if (ordering == Ordering::across_ranks && thread_block.recv_peer >= 0)
        receivers_[{thread_block.recv_peer, program->rank, thread_block.channel}] = blocks_.size();
      ready_.push_back(blocks_.size());
      blocks_.push_back({.program = program,
                         .thread_block = &thread_block,
                         .index = static_cast<int>(i),
                         .first_of_rank = first,
                         .cursor = plan::StepCursor(thread_block.body),
                         .clock = Clock(width),
                         .history = {},
                         .waiters = {}});
    }
  }
}

const Step* Order::next() {
  if (has_current_) {
    complete(current_);
    ready_.push_back(current_);
    has_current_ = false;
  }
  while (!ready_.empty() && !gave_up()) {
    current_ = ready_.back();
    const Step* step = blocks_[current_].cursor.step();
    if (!step || !is_ready(current_)) {
      ready_.pop_back();
      continue;
    }
    if (step->operation == plan::Operation::barrier) continue;  // passed, and completed
    ready_.pop_back();
    has_current_ = true;
    return step;
  }
  return nullptr;
}

bool Order::is_ready(std::size_t index) {
  if (!take_dependencies(index)) return false;
  const Step& step = *blocks_[index].cursor.step();
  if (step.operation == plan::Operation::barrier) return pass_barrier(index);
  return ordering_ == Ordering::within_ranks || !plan::receives(step.operation) ||
         take_message(index);
}

bool Order::take_dependencies(std::size_t index) {
  Block& block = blocks_[index];
  const Step& step = *block.cursor.step();
  for (; block.dependency < step.after.size(); ++block.dependency) {
    const plan::Dependency& dependency = step.after[block.dependency];
    const std::size_t on = block.first_of_rank + static_cast<std::size_t>(dependency.thread_block);
    const std::int64_t wanted = dependency.steps.at(block.cursor.loops());
    if (wanted <= block.clock[on]) continue;
    Block& other = blocks_[on];
    if (other.cursor.number() < wanted) {
      other.waiters.emplace_back(wanted, index);
      return false;
    }
    // What the other one had seen by then; it may have seen more since.
    const auto later = std::ranges::upper_bound(other.history, wanted - 1, {},
                                                &std::pair<std::int64_t, Clock>::first);
    if (later != other.history.begin()) join(block.clock, (later - 1)->second);
    block.clock[on] = std::max(block.clock[on], static_cast<std::int32_t>(wanted));
    block.has_news = true;
  }
  // Only now: nothing can have waited for this step, or for a later one, before.
  if (std::exchange(block.has_news, false)) remember(block);
  return true;
}

// The last thread block to arrive takes all others of its rank over the barrier.
bool Order::pass_barrier(std::size_t index) {
  const std::size_t first = blocks_[index].first_of_rank;
  const std::size_t last = first + blocks_[index].program->thread_blocks.size();
  blocks_[index].at_barrier = true;
  Clock all(blocks_.size());
  for (std::size_t i = first; i < last; ++i) {
    if (!blocks_[i].at_barrier) return false;
    join(all, blocks_[i].clock);
  }
  for (std::size_t i = first; i < last; ++i)
    all[i] = static_cast<std::int32_t>(blocks_[i].cursor.number()) + 1;
  for (std::size_t i = first; i < last; ++i) {
    Block& block = blocks_[i];
    block.at_barrier = false;
    block.clock = all;
    remember(block);
    complete(i);
    if (i != index) ready_.push_back(i);
  }
  return true;
}

bool Order::take_message(std::size_t index) {
  Block& block = blocks_[index];
  const plan::ThreadBlock& it = *block.thread_block;
  std::deque<Clock>& queue = messages_[{it.recv_peer, block.program->rank, it.channel}];
  block.wants_message = queue.empty();
  if (queue.empty()) return false;
  join(block.clock, queue.front());
  queue.pop_front();
  remember(block);
  return true;
}

void Order::complete(std::size_t index) {
  Block& block = blocks_[index];
  const Step& step = *block.cursor.step();
  block.cursor.advance();
  block.dependency = 0;
  const std::int64_t done = block.cursor.number();
  std::erase_if(block.waiters, [&](const auto& waiter) {
    if (waiter.first > done) return false;
    ready_.push_back(waiter.second);
    return true;
  });
  if (ordering_ == Ordering::within_ranks || !plan::sends(step.operation)) return;
  const plan::ThreadBlock& it = *block.thread_block;
  const Key key{block.program->rank, it.send_peer, it.channel};
  Clock seen = block.clock;
  seen[index] = static_cast<std::int32_t>(done);
  messages_[key].push_back(std::move(seen));
  const auto receiver = receivers_.find(key);
  if (receiver == receivers_.end()) return;
  if (std::exchange(blocks_[receiver->second].wants_message, false))
    ready_.push_back(receiver->second);
}

void Order::remember(Block& block) {
  if (!block.history.empty() && block.history.back().first == block.cursor.number()) {
    block.history.back().second = block.clock;
    return;
  }
  block.history.emplace_back(block.cursor.number(), block.clock);
  remembered_ += block.clock.size();
}

void Order::join(Clock& into, const Clock& other) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

}  // namespace unisono::verify
