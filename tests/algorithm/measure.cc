#include "algorithm/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <tuple>

#include "plan/walk.h"

namespace unisono::algorithm {
namespace {

struct Chain {
  std::int64_t messages = 0;
  std::int64_t crossings = 0;
  double longer_us = 0;
  void follow(const Chain& other) {
    messages = std::max(messages, other.messages);
    crossings = std::max(crossings, other.crossings);
    longer_us = std::max(longer_us, other.longer_us);
  }
};

struct Running {
  int rank;
  const plan::ThreadBlock* code;
  std::deque<Chain>* arriving;  // its connections' messages
  std::deque<Chain>* departing;
  plan::StepCursor cursor;
  Chain chain{};
  std::vector<Chain> after_steps{Chain{}};  // [n]: when n steps are complete
};

class Measurement {
 public:
  Measurement(const plan::Plan& plan, const topo::Placement& placement, double block_bytes)
      : plan_(plan),
        placement_(placement),
        chunk_bytes_(block_bytes / plan.header.chunks_per_block),
        sent_(plan.programs.size()),
        sent_inter_node_(plan.programs.size()),
        messages_sent_(plan.programs.size()),
        messages_taken_(plan.programs.size()),
        copied_(plan.programs.size()),
        reduced_(plan.programs.size()) {
    for (const plan::RankProgram& program : plan.programs) {
      first_.push_back(running_.size());
      for (const plan::ThreadBlock& code : program.thread_blocks)
        running_.push_back({.rank = program.rank,
                            .code = &code,
                            .arriving = &messages_[{code.recv_peer, program.rank, code.channel}],
                            .departing = &messages_[{program.rank, code.send_peer, code.channel}],
                            .cursor = plan::StepCursor(code.body)});
    }
  }

  Cost run() {
    for (bool advanced = true; advanced;) {
      advanced = false;
      for (Running& block : running_)
        while (block.cursor.step() != nullptr && advance(block)) advanced = true;
    }
    for (const Running& block : running_)
      EXPECT_EQ(block.cursor.step(), nullptr) << plan_.header.name << " does not end";
    longest_.messages = std::max<std::int64_t>(longest_.messages, 0);
    return {.steps = longest_.messages,
            .steps_inter_node = longest_.crossings,
            .messages = std::max(*std::max_element(messages_sent_.begin(), messages_sent_.end()),
                                 *std::max_element(messages_taken_.begin(), messages_taken_.end())),
            .messages_of_all =
                std::accumulate(messages_sent_.begin(), messages_sent_.end(), std::int64_t{0}),
            .messages_of_all_inter_node = messages_inter_node_,
            .bytes_sent = *std::max_element(sent_.begin(), sent_.end()),
            .bytes_sent_inter_node =
                *std::max_element(sent_inter_node_.begin(), sent_inter_node_.end()),
            .bytes_copied = *std::max_element(copied_.begin(), copied_.end()),
            .bytes_reduced = *std::max_element(reduced_.begin(), reduced_.end())};
  }

  double longer_us() const { return longest_.longer_us; }

 private:
  using Connection = std::tuple<int, int, int>;  // sender, receiver, channel

  // False if the step must wait.
  bool advance(Running& block) {
    const plan::Step& step = *block.cursor.step();
    const plan::ThreadBlock& code = *block.code;
    Chain chain = block.chain;
    for (const plan::Dependency& dependency : step.after) {
      const Running& other = running_[first_[static_cast<std::size_t>(block.rank)] +
                                      static_cast<std::size_t>(dependency.thread_block)];
      const auto steps = static_cast<std::size_t>(dependency.steps.at(block.cursor.loops()));
      if (other.after_steps.size() <= steps) return false;
      chain.follow(other.after_steps[steps]);
    }
    const auto rank = static_cast<std::size_t>(block.rank);
    if (plan::receives(step.operation)) {
      if (block.arriving->empty()) return false;
      chain.follow(block.arriving->front());
      block.arriving->pop_front();
      ++messages_taken_[rank];
    }
    const double bytes = chunk_bytes_ * step.count;
    const bool moves = plan::sends(step.operation) || step.operation == plan::Operation::put;
    const bool crosses = moves && !placement_.same_node(block.rank, code.send_peer);
    if (moves && step.operation != plan::Operation::signal) {
      sent_[rank] += bytes;
      if (crosses) sent_inter_node_[rank] += bytes;
      if (crosses) ++messages_inter_node_;
    }
    if (step.operation == plan::Operation::copy) copied_[rank] += bytes;
    if (plan::reduces(step.operation))
      reduced_[rank] += bytes * static_cast<double>(std::max<std::size_t>(step.peers.size(), 1));
    if (plan::sends(step.operation)) {
      const double longer_us =
          crosses
              ? placement_.levels().longer_us(placement_.levels_left(block.rank, code.send_peer))
              : 0;
      const Chain message{chain.messages + 1, chain.crossings + (crosses ? 1 : 0),
                          chain.longer_us + longer_us};
      block.departing->push_back(message);
      ++messages_sent_[rank];
      longest_.follow(message);
    }
    block.chain = chain;
    block.after_steps.push_back(chain);
    block.cursor.advance();
    return true;
  }

  const plan::Plan& plan_;
  const topo::Placement& placement_;
  double chunk_bytes_;
  // By rank.
  std::vector<double> sent_, sent_inter_node_;
  std::vector<std::int64_t> messages_sent_, messages_taken_;
  std::int64_t messages_inter_node_ = 0;
  std::vector<double> copied_, reduced_;
  std::map<Connection, std::deque<Chain>> messages_;
  std::vector<Running> running_;
  std::vector<std::size_t> first_;  // by rank, in running_
  Chain longest_;
};

}  // namespace

Cost measure(const plan::Plan& plan, const topo::Placement& placement, double block_bytes) {
  return Measurement(plan, placement, block_bytes).run();
}

double measured_longer_us(const plan::Plan& plan, const topo::Placement& placement) {
  Measurement measurement(plan, placement, 1);
  measurement.run();
  return measurement.longer_us();
}

std::vector<plan::Operation> operations_of(const plan::ThreadBlock& thread_block) {
  std::vector<plan::Operation> operations;
  for (plan::StepCursor cursor(thread_block.body); cursor.step() != nullptr; cursor.advance())
    operations.push_back(cursor.step()->operation);
  return operations;
}

}  // namespace unisono::algorithm
