// Programs with their loops unrolled, for passes that replace single steps by others.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace unisono::plan {

// The steps of one thread block: indices are constants, and waits for no steps are left out.
std::vector<Step> unroll(const Body& body);

// One rank's program on its way through a pass: for each step, in order, the steps that replace it.
// take() makes every `after` refer to what replaced the steps that it waited for.
class Rewriting {
 public:
  // `program` must outlive it.
  explicit Rewriting(const RankProgram& program);

  std::size_t blocks() const { return steps_.size(); }
  const std::vector<Step>& steps(std::size_t block) const { return steps_[block]; }
  // Replaces the next step of `block`, whose `after` the first of `steps` gets. Nothing replaces
  // it: the next step that something replaces waits in its place.
  void replace_next(std::size_t block, std::vector<Step> steps);
  // Scratch for `count` chunks that have the same sizes as those from `like` on.
  Location add_scratch(const Header& header, const Location& like, int count);
  RankProgram take();

 private:
  const RankProgram& program_;
  int scratch_blocks_;
  std::vector<std::vector<Step>> steps_;
  std::vector<std::vector<Step>> out_;
  // By block: how many steps have replaced the first n.
  std::vector<std::vector<std::int64_t>> replaced_;
  std::vector<std::vector<Dependency>> pending_;
};

}  // namespace unisono::plan
