#include "verify/races.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/str.h"
#include "plan/walk.h"
#include "verify/steps.h"

namespace unisono::verify {
namespace {

using plan::Step;

// Executes the thread blocks of one rank in an order that `after` allows, with a vector clock for
// each: how many steps of every other thread block come before its next step.
class RankRaces {
 public:
  RankRaces(const plan::RankProgram& program, const Memory& memory)
      : program_(program), memory_(memory), width_(program.thread_blocks.size()) {
    for (const plan::ThreadBlock& thread_block : program.thread_blocks)
      blocks_.emplace_back(thread_block, width_);
    const auto cells = memory.first(program.rank + 1) - memory.first(program.rank);
    cells_.resize(static_cast<std::size_t>(cells));
  }

  std::optional<Failure> run() {
    for (std::size_t i = 0; i < width_; ++i) ready_.push_back(i);
    while (!ready_.empty() && !failure_) {
      const std::size_t block = ready_.back();
      ready_.pop_back();
      run_block(block);
    }
    return std::move(failure_);
  }

 private:
  using Clock = std::vector<std::int64_t>;

  struct Block {
    Block(const plan::ThreadBlock& program, std::size_t width)
        : cursor(program.body), clock(width) {}
    plan::StepCursor cursor;
    Clock clock;
    // What the clock was from which of its steps on, whenever it took over another one.
    std::vector<std::pair<std::int64_t, Clock>> history;
    std::size_t dependency = 0;
    bool at_barrier = false;
    std::vector<std::pair<std::int64_t, std::size_t>> waiters;  // (steps, thread block)
  };
  struct Access {
    std::int32_t block = -1;
    std::int64_t step = -1;
    std::int32_t next = -1;  // in reads_
  };
  struct Cell {
    Access write;
    std::int32_t first_read = -1;  // since the last write, one a thread block
  };

  void run_block(std::size_t index) {
    Block& block = blocks_[index];
    while (!failure_ && block.cursor.step()) {
      const Step& step = *block.cursor.step();
      if (!take_dependencies(index)) return;
      if (step.operation == plan::Operation::barrier) {
        if (!pass_barrier(index)) return;
        continue;
      }
      touch(index, step);
      complete_step(index);
    }
  }

  bool take_dependencies(std::size_t index) {
    Block& block = blocks_[index];
    const Step& step = *block.cursor.step();
    for (; block.dependency < step.after.size(); ++block.dependency) {
      const plan::Dependency& dependency = step.after[block.dependency];
      const auto on = static_cast<std::size_t>(dependency.thread_block);
      const std::int64_t wanted = dependency.steps.at(block.cursor.loops());
      if (wanted <= block.clock[on]) continue;
      Block& other = blocks_[on];
      if (other.cursor.number() < wanted) {
        other.waiters.emplace_back(wanted, index);
        return false;
      }
      const auto later = std::ranges::upper_bound(other.history, wanted - 1, {},
                                                  &std::pair<std::int64_t, Clock>::first);
      if (later != other.history.begin()) join(block.clock, (later - 1)->second);
      block.clock[on] = std::max(block.clock[on], wanted);
      block.history.emplace_back(block.cursor.number(), block.clock);
    }
    return true;
  }

  static void join(Clock& into, const Clock& other) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
  }

  bool pass_barrier(std::size_t index) {
    blocks_[index].at_barrier = true;
    Clock all(width_);
    for (std::size_t i = 0; i < width_; ++i) {
      if (!blocks_[i].at_barrier) return false;
      join(all, blocks_[i].clock);
      all[i] = blocks_[i].cursor.number() + 1;
    }
    for (std::size_t i = 0; i < width_; ++i) {
      Block& block = blocks_[i];
      block.at_barrier = false;
      block.clock = all;
      block.history.emplace_back(block.cursor.number(), all);
      complete_step(i);
      if (i != index) ready_.push_back(i);
    }
    return true;
  }

  void complete_step(std::size_t index) {
    Block& block = blocks_[index];
    block.cursor.advance();
    block.dependency = 0;
    std::erase_if(block.waiters, [&](const auto& waiter) {
      if (waiter.first > block.cursor.number()) return false;
      ready_.push_back(waiter.second);
      return true;
    });
  }

  void touch(std::size_t index, const Step& step) {
    const bool is_remote_write = step.operation == plan::Operation::put;
    const bool is_remote_read = step.operation == plan::Operation::read_reduce;
    if (plan::reads_source(step.operation) && !is_remote_read)
      touch_range(index, step, step.source, false);
    if (plan::writes_destination(step.operation) && !is_remote_write)
      touch_range(index, step, step.destination, true);
  }

  void touch_range(std::size_t index, const Step& step, const plan::Location& location,
                   bool writes) {
    const std::int64_t chunk = location.index.at(blocks_[index].cursor.loops());
    const std::int64_t first = memory_.cell(program_.rank, location.buffer, chunk, step.count);
    if (first < 0) return;  // the execution reports it
    for (std::int64_t i = 0; i < step.count && !failure_; ++i) {
      const std::int64_t cell = first + i - memory_.first(program_.rank);
      if (writes)
        write(index, cells_[static_cast<std::size_t>(cell)], location.buffer, chunk + i);
      else
        read(index, cells_[static_cast<std::size_t>(cell)], location.buffer, chunk + i);
    }
  }

  bool comes_before(const Access& access, std::size_t index) const {
    const auto block = static_cast<std::size_t>(access.block);
    return block == index || access.step < blocks_[index].clock[block];
  }

  void read(std::size_t index, Cell& cell, plan::Buffer buffer, std::int64_t chunk) {
    if (cell.write.block >= 0 && !comes_before(cell.write, index)) {
      report(index, cell.write, buffer, chunk);
      return;
    }
    const std::int64_t step = blocks_[index].cursor.number();
    for (std::int32_t at = cell.first_read; at >= 0;) {
      Access& access = reads_[static_cast<std::size_t>(at)];
      if (access.block == static_cast<std::int32_t>(index)) {
        access.step = step;
        return;
      }
      at = access.next;
    }
    reads_.push_back({static_cast<std::int32_t>(index), step, cell.first_read});
    cell.first_read = static_cast<std::int32_t>(reads_.size()) - 1;
  }

  void write(std::size_t index, Cell& cell, plan::Buffer buffer, std::int64_t chunk) {
    if (cell.write.block >= 0 && !comes_before(cell.write, index)) {
      report(index, cell.write, buffer, chunk);
      return;
    }
    for (std::int32_t at = cell.first_read; at >= 0;
         at = reads_[static_cast<std::size_t>(at)].next) {
      const Access& access = reads_[static_cast<std::size_t>(at)];
      if (comes_before(access, index)) continue;
      report(index, access, buffer, chunk);
      return;
    }
    cell.first_read = -1;
    cell.write = {static_cast<std::int32_t>(index), blocks_[index].cursor.number(), -1};
  }

  std::string text(std::size_t block, std::int64_t step) const {
    return str("rank ", program_.rank, " thread block ", block, " step ", step, ": ",
               step_text(program_.thread_blocks[block], step));
  }

  void report(std::size_t index, const Access& other, plan::Buffer buffer, std::int64_t chunk) {
    const auto other_block = static_cast<std::size_t>(other.block);
    const std::int64_t step = blocks_[index].cursor.number();
    failure_ = Failure{};
    failure_->problem = Problem::race;
    failure_->rank = program_.rank;
    failure_->thread_block = static_cast<int>(index);
    failure_->step = step;
    failure_->buffer = buffer;
    failure_->chunk = chunk;
    failure_->expected =
        str("an `after` that orders it with thread block ", other_block, " step ", other.step);
    failure_->got = "two steps that touch the chunk in any order, one of them writing";
    failure_->story = {text(other_block, other.step), text(index, step)};
  }

  const plan::RankProgram& program_;
  const Memory& memory_;
  std::size_t width_;
  std::vector<Block> blocks_;
  std::vector<Cell> cells_;
  std::vector<Access> reads_;
  std::vector<std::size_t> ready_;
  std::optional<Failure> failure_;
};

}  // namespace

std::vector<Failure> find_races(const plan::Plan& plan, const Memory& memory, std::size_t most) {
  std::vector<Failure> failures;
  for (const plan::RankProgram& program : plan.programs) {
    if (program.thread_blocks.size() < 2) continue;
    if (std::optional<Failure> failure = RankRaces(program, memory).run())
      failures.push_back(std::move(*failure));
    if (failures.size() == most) break;
  }
  return failures;
}

}  // namespace unisono::verify
