#include "support/float_interpreter.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <span>
#include <stdexcept>
#include <tuple>

#include "base/str.h"
#include "plan/chunk_layout.h"
#include "plan/walk.h"

namespace unisono::test {
namespace {

using Floats = std::vector<float>;

class FloatRun {
 public:
  FloatRun(const plan::Plan& plan, std::int64_t count, ReduceOperation operation,
           const std::vector<Floats>& inputs)
      : plan_(plan),
        operation_(operation),
        layout_(plan::ChunkLayout::of(count, plan.header.chunks_per_block, sizeof(float))) {
    for (const plan::RankProgram& program : plan.programs) {
      const auto blocks = [&](int of) { return Floats(static_cast<std::size_t>(of * count)); };
      memory_.push_back({inputs[static_cast<std::size_t>(program.rank)],
                         blocks(plan::output_blocks_of(plan.header, program.rank)),
                         blocks(program.scratch_blocks)});
      if (operation == ReduceOperation::average && is_reduction(plan.header.collective))
        for (float& value : memory_.back()[static_cast<std::size_t>(plan::Buffer::input)])
          value *= static_cast<float>(1.0 / plan.header.ranks);
      auto& of_rank = blocks_.emplace_back();
      for (const plan::ThreadBlock& block : program.thread_blocks)
        of_rank.push_back({&block, plan::StepCursor(block.body)});
    }
  }

  std::vector<Floats> outputs() {
    while (advance()) continue;
    std::vector<Floats> out;
    for (const plan::RankProgram& program : plan_.programs) {
      const auto rank = static_cast<std::size_t>(program.rank);
      for (const Block& block : blocks_[rank])
        if (block.cursor.step() != nullptr)
          throw std::runtime_error(str(plan_.header.name, " deadlocks on rank ", rank));
      out.push_back(std::move(buffer(rank, plan::Buffer::output)));
    }
    return out;
  }

 private:
  struct Block {
    const plan::ThreadBlock* plan;
    plan::StepCursor cursor;
  };
  using Connection = std::tuple<int, int, int>;  // sender, receiver, channel

  Floats& buffer(std::size_t rank, plan::Buffer which) {
    return memory_[rank][static_cast<std::size_t>(which)];
  }

  // Whether some step was done.
  bool advance() {
    bool moved = false;
    for (std::size_t rank = 0; rank < blocks_.size(); ++rank)
      for (Block& block : blocks_[rank])
        for (; block.cursor.step() != nullptr && try_step(rank, block); block.cursor.advance())
          moved = true;
    return moved;
  }

  bool try_step(std::size_t rank, const Block& block) {
    const plan::Step& step = *block.cursor.step();
    for (const plan::Dependency& after : step.after) {
      const Block& other = blocks_[rank][static_cast<std::size_t>(after.thread_block)];
      if (other.cursor.number() < after.steps.at(block.cursor.loops())) return false;
    }
    if (plan::is_one_sided(step.operation) || step.operation == plan::Operation::barrier)
      throw std::runtime_error(str(plan_.header.name, " has a ", plan::name(step.operation)));
    const int own = static_cast<int>(rank);
    const int channel = block.plan->channel;
    Floats value;
    if (plan::receives(step.operation)) {
      auto& messages = messages_[{block.plan->recv_peer, own, channel}];
      if (messages.empty()) return false;
      value = std::move(messages.front());
      messages.pop_front();
    }
    std::size_t at = 0;  // in the value
    Floats result;
    const bool reads = plan::reads_source(step.operation);
    const bool writes = plan::writes_destination(step.operation);
    for (int i = 0; i < step.count; ++i) {
      const auto to = writes ? chunk(rank, block, step.destination, i) : std::span<float>();
      const auto from = reads ? chunk(rank, block, step.source, i) : std::span<float>();
      const std::size_t size = reads ? from.size() : to.size();
      for (std::size_t e = 0; e < size; ++e) {
        float one = reads ? from[e] : value.at(at + e);
        if (step.operation == plan::Operation::reduce) one = combine(to[e], from[e]);
        if (reads && plan::receives(step.operation)) one = combine(value.at(at + e), from[e]);
        if (writes) to[e] = one;
        result.push_back(one);
      }
      at += size;
    }
    if (plan::sends(step.operation))
      messages_[{own, block.plan->send_peer, channel}].push_back(std::move(result));
    return true;
  }

  std::span<float> chunk(std::size_t rank, const Block& block, const plan::Location& location,
                         int i) {
    const std::int64_t number = location.index.at(block.cursor.loops()) + i;
    const std::int64_t of = number / plan_.header.chunks_per_block;
    const std::int64_t place = number % plan_.header.chunks_per_block;
    return std::span(buffer(rank, location.buffer))
        .subspan(static_cast<std::size_t>(of * layout_.count + layout_.begin(place)),
                 static_cast<std::size_t>(layout_.elements(place)));
  }

  float combine(float a, float b) const {
    switch (operation_) {
      case ReduceOperation::product:
        return a * b;
      case ReduceOperation::min:
        return std::min(a, b);
      case ReduceOperation::max:
        return std::max(a, b);
      default:
        return a + b;
    }
  }

  const plan::Plan& plan_;
  ReduceOperation operation_;
  plan::ChunkLayout layout_;
  std::vector<std::array<Floats, plan::buffer_count>> memory_;  // by rank
  std::vector<std::vector<Block>> blocks_;
  std::map<Connection, std::deque<Floats>> messages_;
};

}  // namespace

std::vector<Floats> run_on_floats(const plan::Plan& plan, std::int64_t count,
                                  ReduceOperation operation, const std::vector<Floats>& inputs) {
  return FloatRun(plan, count, operation, inputs).outputs();
}

}  // namespace unisono::test
