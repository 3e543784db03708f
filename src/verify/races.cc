#include "verify/races.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "base/str.h"
#include "verify/order.h"
#include "verify/steps.h"

namespace unisono::verify {
namespace {

using plan::Operation;
using plan::Step;

// Clocks of all thread blocks for each of them: 64 MiB.
constexpr std::size_t max_blocks_across_ranks = 4096;

// One pass over the steps of some ranks.
class Pass {
 public:
  Pass(const std::vector<const plan::RankProgram*>& programs, const Memory& memory,
       Ordering ordering)
      : memory_(memory),
        ordering_(ordering),
        first_cell_(memory.first(programs.front()->rank)),
        cells_(static_cast<std::size_t>(memory.first(programs.back()->rank + 1) - first_cell_)),
        order_(programs, ordering) {}

  std::optional<Failure> run() {
    while (!failure_) {
      const Step* step = order_.next();
      if (!step) break;
      touch(*step);
    }
    if (!failure_ && order_.gave_up()) {
      failure_ = Failure{};
      failure_->problem = Problem::malformed;
      failure_->expected = "fewer thread blocks, or fewer steps that wait for others";
      failure_->got = "so many that verifying their order needs over 1 GiB";
    }
    return std::move(failure_);
  }

 private:
  struct Access {
    std::int32_t block = -1;
    std::int32_t step = -1;
    std::int32_t next = -1;  // in reads_
  };
  struct Cell {
    Access write;
    std::int32_t first_read = -1;  // since the last write, one a thread block
  };

  void touch(const Step& step) {
    const int rank = order_.program_of(order_.block()).rank;
    const bool across = ordering_ == Ordering::across_ranks;
    if (step.operation == Operation::read_reduce) {
      for (const int peer : step.peers)
        if (across) touch_range(step, step.source, peer, false);
    } else if (plan::reads_source(step.operation)) {
      touch_range(step, step.source, rank, false);
    }
    if (step.operation == Operation::put) {
      const plan::RankProgram& program = order_.program_of(order_.block());
      const auto index = static_cast<std::size_t>(order_.index_in_rank(order_.block()));
      if (across) touch_range(step, step.destination, program.thread_blocks[index].send_peer, true);
    } else if (plan::writes_destination(step.operation)) {
      touch_range(step, step.destination, rank, true);
    }
  }

  void touch_range(const Step& step, const plan::Location& location, int rank, bool writes) {
    const std::int64_t chunk = location.index.at(order_.loops());
    const std::int64_t first = memory_.cell(rank, location.buffer, chunk, step.count);
    if (first < 0) return;  // the execution reports it
    for (std::int64_t i = 0; i < step.count && !failure_; ++i) {
      Cell& cell = cells_[static_cast<std::size_t>(first - first_cell_ + i)];
      const Access* other = writes ? write(cell) : read(cell);
      if (other) report(*other, location.buffer, chunk + i);
    }
  }

  bool is_ordered(const Access& access) const {
    return access.block < 0 ||
           order_.comes_before(static_cast<std::size_t>(access.block), access.step);
  }

  Access here() const {
    return {static_cast<std::int32_t>(order_.block()), static_cast<std::int32_t>(order_.step()),
            -1};
  }

  // Both return an access in no order with this one, or null.
  const Access* read(Cell& cell) {
    if (!is_ordered(cell.write)) return &cell.write;
    Access access = here();
    for (std::int32_t at = cell.first_read; at >= 0;) {
      Access& known = reads_[static_cast<std::size_t>(at)];
      if (known.block == access.block) {
        known.step = access.step;
        return nullptr;
      }
      at = known.next;
    }
    access.next = std::exchange(cell.first_read, static_cast<std::int32_t>(reads_.size()));
    reads_.push_back(access);
    return nullptr;
  }

  const Access* write(Cell& cell) {
    if (!is_ordered(cell.write)) return &cell.write;
    for (std::int32_t at = cell.first_read; at >= 0; at = reads_[static_cast<std::size_t>(at)].next)
      if (!is_ordered(reads_[static_cast<std::size_t>(at)]))
        return &reads_[static_cast<std::size_t>(at)];
    cell = {here(), -1};
    return nullptr;
  }

  std::string text(std::size_t block, std::int64_t step) const {
    const plan::RankProgram& program = order_.program_of(block);
    const int index = order_.index_in_rank(block);
    return str("rank ", program.rank, " thread block ", index, " step ", step, ": ",
               step_text(program.thread_blocks[static_cast<std::size_t>(index)], step));
  }

  void report(const Access& other, plan::Buffer buffer, std::int64_t chunk) {
    const auto other_block = static_cast<std::size_t>(other.block);
    failure_ = Failure{};
    failure_->problem = Problem::race;
    failure_->rank = order_.program_of(order_.block()).rank;
    failure_->thread_block = order_.index_in_rank(order_.block());
    failure_->step = order_.step();
    failure_->buffer = buffer;
    failure_->chunk = chunk;
    const int other_rank = order_.program_of(other_block).rank;
    if (other_rank == failure_->rank)
      failure_->expected = str("an `after` that orders it with thread block ",
                               order_.index_in_rank(other_block), " step ", other.step);
    else
      failure_->expected =
          str("a signal and a wait that order it with rank ", other_rank, " thread block ",
              order_.index_in_rank(other_block), " step ", other.step);
    failure_->got = "two unordered steps access the chunk, and at least one writes it";
    failure_->counterexample = {text(other_block, other.step), text(order_.block(), order_.step())};
  }

  const Memory& memory_;
  Ordering ordering_;
  std::int64_t first_cell_;
  std::vector<Cell> cells_;
  Order order_;
  std::vector<Access> reads_;
  std::optional<Failure> failure_;
};

bool touches_other_ranks(const plan::Body& body) {
  return std::ranges::any_of(body, [](const plan::Node& node) {
    if (const plan::Loop* loop = std::get_if<plan::Loop>(&node))
      return touches_other_ranks(loop->body);
    const Operation operation = std::get<Step>(node).operation;
    return operation == Operation::put || operation == Operation::read_reduce;
  });
}

std::optional<Failure> find_race_across_ranks(const plan::Plan& plan, const Memory& memory) {
  std::vector<const plan::RankProgram*> programs;
  std::size_t blocks = 0;
  bool is_needed = false;
  for (const plan::RankProgram& program : plan.programs) {
    programs.push_back(&program);
    blocks += program.thread_blocks.size();
    for (const plan::ThreadBlock& thread_block : program.thread_blocks)
      is_needed = is_needed || touches_other_ranks(thread_block.body);
  }
  if (!is_needed) return std::nullopt;
  if (blocks <= max_blocks_across_ranks)
    return Pass(programs, memory, Ordering::across_ranks).run();
  Failure failure;
  failure.problem = Problem::malformed;
  failure.expected = str("at most ", max_blocks_across_ranks,
                         " thread blocks, all ranks together, in a plan with put or read_reduce");
  failure.got = str(blocks);
  return failure;
}

}  // namespace

std::vector<Failure> find_races(const plan::Plan& plan, const Memory& memory, std::size_t most) {
  std::vector<Failure> failures;
  for (const plan::RankProgram& program : plan.programs) {
    if (program.thread_blocks.size() < 2) continue;
    if (auto failure = Pass({&program}, memory, Ordering::within_ranks).run())
      failures.push_back(std::move(*failure));
    if (failures.size() == most) return failures;
  }
  if (failures.empty())
    if (auto failure = find_race_across_ranks(plan, memory))
      failures.push_back(std::move(*failure));
  return failures;
}

}  // namespace unisono::verify
