#include "plan/partners.h"

#include <algorithm>

#include "plan/check.h"

namespace unisono::plan {
namespace {

template <class Visit>
void visit_steps(const Body& body, const Visit& visit) {
  for (const Node& node : body) {
    if (const Loop* loop = std::get_if<Loop>(&node))
      visit_steps(loop->body, visit);
    else
      visit(std::get<Step>(node));
  }
}

template <class Visit>
void visit_steps(const Plan& plan, const Visit& visit) {
  for (const RankProgram& program : plan.programs)
    for (const ThreadBlock& block : program.thread_blocks)
      visit_steps(block.body, [&](const Step& step) { visit(program.rank, block, step); });
}

}  // namespace

std::vector<std::vector<int>> partners(const Plan& plan) {
  std::vector<std::vector<int>> out(plan.programs.size());
  const auto meet = [&](int a, int b) {
    out[static_cast<std::size_t>(a)].push_back(b);
    out[static_cast<std::size_t>(b)].push_back(a);
  };
  visit_steps(plan, [&](int rank, const ThreadBlock& block, const Step& step) {
    if (step.operation == Operation::put) meet(rank, block.send_peer);
    for (const int peer : step.peers) meet(rank, peer);
  });
  for (std::vector<int>& of_rank : out) {
    std::ranges::sort(of_rank);
    of_rank.erase(std::unique(of_rank.begin(), of_rank.end()), of_rank.end());
  }
  return out;
}

std::uint32_t operations(const Plan& plan) {
  std::uint32_t out = 0;
  visit_steps(plan, [&](int, const ThreadBlock&, const Step& step) { out |= bit(step.operation); });
  return out;
}

}  // namespace unisono::plan
