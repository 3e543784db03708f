#include "plan/zero_copy.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "plan/check.h"
#include "plan/partners.h"
#include "plan/unrolled.h"

namespace unisono::plan {
namespace {

using Steps = std::vector<std::vector<Step>>;  // by thread block

struct Place {
  std::size_t block;
  std::size_t step;
};

// Steps of a block from `first` on come after a given step, whatever the thread blocks' pace.
class After {
 public:
  After(const Steps& steps, Place of) : steps_(steps) {
    for (const std::vector<Step>& block : steps) first_.push_back(block.size());
    first_[of.block] = of.step;
    while (spread()) continue;
    ++first_[of.block];  // the step itself does not
  }
  bool has(Place place) const { return place.step >= first_[place.block]; }

 private:
  // Whether a step was found that waits for one that is known.
  bool spread() {
    bool found = false;
    for (std::size_t block = 0; block < first_.size(); ++block)
      for (std::size_t i = 0; i < first_[block]; ++i) {
        if (!waits(steps_[block][i])) continue;
        first_[block] = i;
        found = true;
      }
    return found;
  }
  bool waits(const Step& step) const {
    return std::ranges::any_of(step.after, [&](const Dependency& wanted) {
      return static_cast<std::size_t>(wanted.steps.base) >
             first_[static_cast<std::size_t>(wanted.thread_block)];
    });
  }

  const Steps& steps_;
  std::vector<std::size_t> first_;
};

// Which steps of a program touch which memory of its rank.
class Touches {
 public:
  Touches(const Header& header, int rank, const Steps& steps) : header_(header), rank_(rank) {
    for (std::size_t block = 0; block < steps.size(); ++block)
      for (std::size_t i = 0; i < steps[block].size(); ++i) {
        const Step& step = steps[block][i];
        if (reads_source(step.operation) && step.operation != Operation::read_reduce)
          add(step.source, step.count, {block, i});
        if (writes_destination(step.operation) && step.operation != Operation::put)
          add(step.destination, step.count, {block, i});
      }
  }
  const std::vector<Place>& of(const Location& location, int i) const {
    return places_.at(key(location, i));
  }

 private:
  using Key = std::pair<Buffer, std::int64_t>;
  Key key(const Location& location, int i) const {
    const Storage at = storage_of(header_, rank_, location.buffer, location.index.base + i);
    return {at.buffer, at.chunk};
  }
  void add(const Location& location, int count, Place place) {
    for (int i = 0; i < count; ++i) places_[key(location, i)].push_back(place);
  }

  const Header& header_;
  int rank_;
  std::map<Key, std::vector<Place>> places_;
};

bool stores_alone(const Step& step) {
  return (step.operation == Operation::recv || step.operation == Operation::recv_copy_send) &&
         step.destination.buffer == Buffer::output;
}

bool is_early(const Steps& steps, const Touches& touches, Place place) {
  const Step& step = steps[place.block][place.step];
  if (!stores_alone(step)) return false;
  const After after(steps, place);
  for (int i = 0; i < step.count; ++i)
    for (const Place& other : touches.of(step.destination, i))
      if ((other.block != place.block || other.step != place.step) && !after.has(other))
        return false;
  return true;
}

Step signal_step() { return {.operation = Operation::signal}; }

Step moving(Operation operation, const Location& source, const Location& destination, int count) {
  return {.operation = operation, .source = source, .destination = destination, .count = count};
}

Step storing(Operation operation, const Location& destination, int count) {
  return {.operation = operation, .destination = destination, .count = count};
}

// What a sending step does before its value lies where a put can read it, and there.
std::pair<std::vector<Step>, Location> kept(const Header& header, const Step& step,
                                            Rewriting& rewriting) {
  using enum Operation;
  switch (step.operation) {
    case copy_send:
      return {{moving(copy, step.source, step.destination, step.count)}, step.destination};
    case recv_copy_send:
      return {{storing(recv, step.destination, step.count)}, step.destination};
    case recv_reduce_copy_send:
      return {{moving(recv_reduce_copy, step.source, step.destination, step.count)},
              step.destination};
    case recv_reduce_send: {
      const Location sum = rewriting.add_scratch(header, step.source, step.count);
      return {{moving(recv_reduce_copy, step.source, sum, step.count)}, sum};
    }
    default:  // send
      return {{}, step.source};
  }
}

using Connection = std::tuple<int, int, int>;  // sender, receiver, channel

}  // namespace

std::vector<std::vector<EarlyMessages>> early_messages(const Header& header,
                                                       const RankProgram& program,
                                                       const ZeroCopyLimits& limits) {
  Steps steps;
  std::size_t count = 0;
  for (const ThreadBlock& block : program.thread_blocks) {
    steps.push_back(unroll(block.body));
    count += steps.back().size();
  }
  const bool receives_any = count <= zero_copy_max_steps;
  const Touches touches(header, program.rank, receives_any ? steps : Steps{});
  std::vector<std::vector<EarlyMessages>> out;
  for (std::size_t block = 0; block < steps.size(); ++block) {
    out.emplace_back(steps[block].size());
    std::int64_t sent = 0;
    std::int64_t received = 0;
    for (std::size_t i = 0; i < steps[block].size(); ++i) {
      const Step& step = steps[block][i];
      EarlyMessages& numbers = out.back()[i];
      const auto is_within = [&](std::int64_t number) {
        return number <= limits.messages && step.count <= limits.chunks;
      };
      if (sends(step.operation) && is_within(++sent)) numbers.sent = sent;
      if (receives(step.operation) && is_within(++received) && receives_any &&
          is_early(steps, touches, {block, i}))
        numbers.received = received;
    }
  }
  return out;
}

ZeroCopy::ZeroCopy(const Plan& plan, const ZeroCopyLimits& limits) : plan_(plan) {
  std::map<std::pair<Connection, std::int64_t>, Location> destinations;  // by number
  // Where others put or read already, a program's own steps are not all that touch its memory.
  const bool is_reached =
      (operations(plan) & (bit(Operation::put) | bit(Operation::read_reduce))) != 0;
  for (const RankProgram& program : plan.programs) {
    const auto numbers = early_messages(plan.header, program, limits);
    auto& ends = ends_.emplace_back();
    for (std::size_t b = 0; b < program.thread_blocks.size(); ++b) {
      const ThreadBlock& block = program.thread_blocks[b];
      const std::vector<Step> steps = unroll(block.body);
      auto& of_block = ends.emplace_back();
      for (std::size_t i = 0; i < steps.size(); ++i) {
        EarlyMessages& own = of_block.emplace_back(Ends{numbers[b][i], {}}).numbers;
        if (is_reached) own.received = 0;
        messages_ += receives(steps[i].operation);
        if (own.received == 0) continue;
        ++early_;
        const Connection connection{block.recv_peer, program.rank, block.channel};
        destinations[{connection, own.received}] = steps[i].destination;
      }
    }
  }
  for (const RankProgram& program : plan.programs)
    for (std::size_t b = 0; b < program.thread_blocks.size(); ++b) {
      const ThreadBlock& block = program.thread_blocks[b];
      const Connection connection{program.rank, block.send_peer, block.channel};
      for (Ends& ends : ends_[static_cast<std::size_t>(program.rank)][b]) {
        const auto found = destinations.find({connection, ends.numbers.sent});
        if (found == destinations.end())
          ends.numbers.sent = 0;
        else
          ends.destination = found->second;
      }
    }
}

Plan ZeroCopy::under(const Reach& reach) const {
  Plan out{.header = plan_.header, .programs = {}};
  for (std::size_t rank = 0; rank < plan_.programs.size(); ++rank) {
    const RankProgram& program = plan_.programs[rank];
    Rewriting rewriting(program);
    for (std::size_t b = 0; b < rewriting.blocks(); ++b) {
      const ThreadBlock& block = program.thread_blocks[b];
      const std::vector<Step>& steps = rewriting.steps(b);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        Step step = steps[i];
        std::vector<Step> replaced;
        const Ends& ends = ends_[rank][b][i];
        if (ends.numbers.received != 0 && reach.has(block.recv_peer, program.rank)) {
          replaced.push_back({.operation = Operation::wait});
          const bool sends_on = step.operation == Operation::recv_copy_send;
          step = {.operation = Operation::send, .source = step.destination, .count = step.count};
          if (!sends_on) step.operation = Operation::wait;
        }
        if (ends.numbers.sent != 0 && reach.has(program.rank, block.send_peer)) {
          auto [steps_before, from] = kept(plan_.header, step, rewriting);
          std::ranges::move(steps_before, std::back_inserter(replaced));
          replaced.push_back(moving(Operation::put, from, ends.destination, step.count));
          replaced.push_back(signal_step());
        } else if (step.operation != Operation::wait || replaced.empty()) {
          replaced.push_back(step);
        }
        rewriting.replace_next(b, std::move(replaced));
      }
    }
    out.programs.push_back(rewriting.take());
  }
  return out;
}

Result<Plan> with_messages(const Plan& plan) {
  struct Token {
    std::vector<std::pair<Location, int>> puts;
  };
  struct Queue {
    std::vector<Token> tokens;
    std::size_t open_puts = 0;
    std::size_t taken = 0;
  };
  std::map<Connection, Queue> queues;
  for (const RankProgram& program : plan.programs)
    for (const ThreadBlock& block : program.thread_blocks) {
      Queue& queue = queues[{program.rank, block.send_peer, block.channel}];
      Token token;
      for (const Step& step : unroll(block.body)) {
        if (step.operation == Operation::read_reduce)
          return misuse("plan ", plan.header.name, " has a read_reduce on rank ", program.rank,
                        "; read_reduce cannot become a message, because the peer sends none");
        if (step.operation == Operation::put) token.puts.emplace_back(step.destination, step.count);
        if (step.operation == Operation::signal) queue.tokens.push_back(std::exchange(token, {}));
      }
      if (!token.puts.empty())
        return misuse("plan ", plan.header.name, " puts ", token.puts.size(),
                      " times without a signal after it, on rank ", program.rank, " to rank ",
                      block.send_peer);
    }
  Plan out{.header = plan.header, .programs = {}};
  for (const RankProgram& program : plan.programs) {
    Rewriting rewriting(program);
    for (std::size_t b = 0; b < rewriting.blocks(); ++b) {
      const ThreadBlock& block = program.thread_blocks[b];
      bool has_put = false;
      for (const Step& step : rewriting.steps(b)) {
        std::vector<Step> replaced{step};
        if (step.operation == Operation::put) {
          replaced = {{.operation = Operation::send, .source = step.source, .count = step.count}};
          has_put = true;
        } else if (step.operation == Operation::signal && std::exchange(has_put, false)) {
          replaced.clear();
        } else if (step.operation == Operation::wait) {
          Queue& queue = queues[{block.recv_peer, program.rank, block.channel}];
          if (queue.taken == queue.tokens.size())
            return misuse("plan ", plan.header.name, " waits on rank ", program.rank,
                          " for a signal that rank ", block.recv_peer, " does not send");
          const Token& token = queue.tokens[queue.taken++];
          if (!token.puts.empty()) replaced.clear();
          for (const auto& [destination, count] : token.puts)
            replaced.push_back(storing(Operation::recv, destination, count));
        }
        rewriting.replace_next(b, std::move(replaced));
      }
    }
    out.programs.push_back(rewriting.take());
  }
  return out;
}

}  // namespace unisono::plan
