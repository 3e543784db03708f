// What a failure says: values and steps in words, and how a value came about.
#include <algorithm>
#include <array>

#include "base/str.h"
#include "verify/execution.h"
#include "verify/steps.h"

namespace unisono::verify {

using plan::Step;

bool Execution::fail(int block, Problem problem, plan::Buffer buffer, std::int64_t chunk,
                     std::string expected, std::string got, std::array<Value, 2> because) {
  const Block& it = blocks_[static_cast<std::size_t>(block)];
  failure_ = Failure{};
  failure_->problem = problem;
  failure_->rank = it.rank;
  failure_->thread_block = it.index;
  failure_->step = it.cursor.number();
  failure_->buffer = buffer;
  failure_->chunk = chunk;
  failure_->expected = std::move(expected);
  failure_->got = std::move(got);
  if (record_) {
    tell(because);
    if (it.cursor.step())
      failure_->counterexample.push_back(
          describe_step(block, *it.cursor.step(), it.cursor.loops()));
  }
  return false;
}

bool Execution::fail_result(Problem problem, int rank, std::int64_t chunk, const Value& value,
                            std::string expected, std::string got) {
  failure_ = Failure{};
  failure_->problem = problem;
  failure_->rank = rank;
  failure_->buffer = plan::Buffer::output;
  failure_->chunk = chunk;
  failure_->expected = std::move(expected);
  failure_->got = std::move(got);
  if (!record_) return false;
  if (value.event >= 0) {
    const Event& last = events_[static_cast<std::size_t>(value.event)];
    failure_->thread_block = blocks_[static_cast<std::size_t>(last.block)].index;
    failure_->step = last.step;
  }
  tell({value, Value{}});
  return false;
}

std::string Execution::describe_sum(std::int64_t position, RankSets::Id set) const {
  return contents_.describe_sum(position, set, sums_.sets());
}

std::string Execution::describe(const Value& value) const {
  if (value.sum == unwritten) return "nothing: never written";
  if (is_barrier_) return "a token";
  if (!contents_.adds()) return contents_.describe(value.position);
  return str(describe_sum(value.position, sums_.ranks_of(value.sum)),
             sums_.is_raw(value.sum) ? ", raw" : "");
}

std::string Execution::describe_step(int block, const Step& step,
                                     const plan::LoopValues& loops) const {
  const Block& it = blocks_[static_cast<std::size_t>(block)];
  return str("rank ", it.rank, " thread block ", it.index, " step ", it.cursor.number(), ": ",
             step_text(*it.thread_block, step, loops));
}

std::string Execution::describe_step(int block, std::int64_t step) const {
  const Block& it = blocks_[static_cast<std::size_t>(block)];
  return str("rank ", it.rank, " thread block ", it.index, " step ", step, ": ",
             step_text(*it.thread_block, step));
}

// How `value` came about, oldest step first, at most `most` lines. Of the two operands of a sum,
// the one is followed that holds `contribution`; without one, what the message brought.
std::vector<std::string> Execution::counterexample_of(const Value& value, int contribution,
                                                      std::size_t most) const {
  std::vector<std::int32_t> chain;
  for (std::int32_t at = value.event; at >= 0;) {
    chain.push_back(at);
    const Event& event = events_[static_cast<std::size_t>(at)];
    const auto leads_on = [&](std::int32_t from) {
      if (from < 0 || contribution < 0) return from >= 0;
      const Sum sum = events_[static_cast<std::size_t>(from)].value.sum;
      return sums_.sets().contains(sums_.ranks_of(sum), contribution);
    };
    at = leads_on(event.from_message)  ? event.from_message
         : leads_on(event.from_memory) ? event.from_memory
                                       : -1;
  }
  std::ranges::reverse(chain);
  std::vector<std::string> lines;
  const std::size_t oldest = most / 3;
  const std::size_t left_out = chain.size() > most ? chain.size() - most + 1 : 0;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (left_out > 0 && i == oldest) {
      lines.push_back(str("... ", left_out, " steps more ..."));
      i += left_out - 1;
      continue;
    }
    const Event& event = events_[static_cast<std::size_t>(chain[i])];
    lines.push_back(str(describe_step(event.block, event.step), ": ", describe(event.value)));
  }
  return lines;
}

void Execution::tell(const std::array<Value, 2>& because) {
  constexpr std::size_t most = 11;  // the failing step itself makes it a dozen
  std::vector<std::string>& counterexample = failure_->counterexample;
  const auto& [first, second] = because;
  if (second.event < 0) {
    counterexample = counterexample_of(first, -1, most);
    return;
  }
  const bool sums = contents_.adds() && first.sum != unwritten && second.sum != unwritten;
  int twice = -1;
  for (int one = 0; sums && one < contents_.contributions() && twice < 0; ++one)
    if (sums_.sets().contains(sums_.ranks_of(first.sum), one) &&
        sums_.sets().contains(sums_.ranks_of(second.sum), one))
      twice = one;
  counterexample = counterexample_of(first, twice, most / 2);
  const std::vector<std::string> rest = counterexample_of(second, twice, most / 2);
  counterexample.insert(counterexample.end(), rest.begin(), rest.end());
}

}  // namespace unisono::verify
