#include "support/permuted_plan.h"

#include <variant>

namespace unisono::test {
namespace {

// Whether a buffer has a block for each rank.
bool has_block_for_each(Collective collective, plan::Buffer buffer) {
  switch (collective) {
    case Collective::all_gather:
    case Collective::gather:
      return buffer == plan::Buffer::output;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return buffer == plan::Buffer::input;
    case Collective::all_to_all:
      return buffer != plan::Buffer::scratch;
    default:
      return false;
  }
}

}  // namespace

plan::Plan permuted(const plan::Plan& plan, const std::vector<int>& numbers) {
  const auto number_of = [&](int rank) {
    return rank < 0 ? rank : numbers[static_cast<std::size_t>(rank)];
  };
  const std::int64_t chunks = plan.header.chunks_per_block;
  const auto move = [&](plan::Location& location) {
    if (!has_block_for_each(plan.header.collective, location.buffer)) return;
    const std::int64_t chunk = location.index.at({});
    location.index = number_of(static_cast<int>(chunk / chunks)) * chunks + chunk % chunks;
  };
  plan::Plan out = plan;
  if (has_root(plan.header.collective)) out.header.root = number_of(plan.header.root);
  for (std::size_t rank = 0; rank < plan.programs.size(); ++rank) {
    plan::RankProgram program = plan.programs[rank];
    program.rank = number_of(static_cast<int>(rank));
    for (plan::ThreadBlock& block : program.thread_blocks) {
      block.send_peer = number_of(block.send_peer);
      block.recv_peer = number_of(block.recv_peer);
      for (plan::Node& node : block.body) {
        auto& step = std::get<plan::Step>(node);
        if (plan::reads_source(step.operation)) move(step.source);
        if (plan::writes_destination(step.operation)) move(step.destination);
      }
    }
    out.programs[static_cast<std::size_t>(program.rank)] = std::move(program);
  }
  return out;
}

}  // namespace unisono::test
