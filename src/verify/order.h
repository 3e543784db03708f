// In which order the steps of a plan must happen.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "plan/walk.h"

namespace unisono::verify {

// What orders two steps in addition to program order, `after` and barriers.
enum class Ordering : std::uint8_t {
  within_ranks,  // nothing: an executor may rely on a rank's own order alone
  across_ranks,  // messages and tokens too
};

// Goes through the steps of some ranks in an order that respects theirs, with a vector clock for
// each thread block: how many steps of every other one must come before its next step. Stops where
// a deadlock does not let it go on.
class Order {
 public:
  // Thread blocks are numbered rank after rank.
  Order(const std::vector<const plan::RankProgram*>& programs, Ordering ordering);

  std::size_t thread_blocks() const { return blocks_.size(); }
  const plan::RankProgram& program_of(std::size_t block) const { return *blocks_[block].program; }
  int index_in_rank(std::size_t block) const { return blocks_[block].index; }

  // The next step, or null at the end. It counts as done with the next call.
  const plan::Step* next();
  std::size_t block() const { return current_; }  // of the step that next() gave
  const plan::LoopValues& loops() const { return blocks_[current_].cursor.loops(); }
  std::int64_t step() const { return blocks_[current_].cursor.number(); }

  // Whether `step` of `block` must come before the step that next() gave.
  bool comes_before(std::size_t block, std::int64_t step) const {
    return block == current_ || step < blocks_[current_].clock[block];
  }

  // Whether it was given up, because the clocks that it must remember take too much memory.
  bool gave_up() const { return remembered_ > max_remembered; }

 private:
  // 1 GiB of clocks.
  static constexpr std::size_t max_remembered = std::size_t{1} << 28;

  using Clock = std::vector<std::int32_t>;
  using Key = std::tuple<int, int, int>;  // sender, receiver, channel

  struct Block {
    const plan::RankProgram* program;
    const plan::ThreadBlock* thread_block;
    int index;
    std::size_t first_of_rank;
    plan::StepCursor cursor;
    Clock clock;
    // What the clock was from which step on, whenever it took over another one.
    std::vector<std::pair<std::int64_t, Clock>> history;
    std::size_t dependency = 0;
    bool has_news = false;  // the clock took over others for the next step
    bool at_barrier = false;
    bool wants_message = false;
    std::vector<std::pair<std::int64_t, std::size_t>> waiters;  // (steps, thread block)
  };

  bool is_ready(std::size_t index);
  bool take_dependencies(std::size_t index);
  bool pass_barrier(std::size_t index);
  bool take_message(std::size_t index);
  void complete(std::size_t index);
  void remember(Block& block);
  static void join(Clock& into, const Clock& other);

  Ordering ordering_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> ready_;
  std::size_t current_ = 0;
  bool has_current_ = false;
  std::size_t remembered_ = 0;
  std::map<Key, std::deque<Clock>> messages_;  // what their senders had seen
  std::map<Key, std::size_t> receivers_;
};

}  // namespace unisono::verify
