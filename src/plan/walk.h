// Going through a thread block's steps in order, loops unrolled one step at a time.
#pragma once

#include "plan/plan.h"

namespace unisono::plan {

// A cursor over the unrolled steps; holds no copy of the program, which must outlive it.
class StepCursor {
 public:
  explicit StepCursor(const Body& body);

  // nullptr at the end.
  const Step* step() const { return step_; }
  const LoopValues& loops() const { return loops_; }
  // How many steps come before this one.
  std::int64_t number() const { return number_; }
  void advance();

 private:
  struct Frame {
    const Body* body;
    std::size_t position;
    std::int64_t iterations_left;  // after the current one
  };
  void settle();

  std::array<Frame, max_loop_depth + 1> frames_{};
  int depth_ = 0;
  LoopValues loops_{};
  const Step* step_ = nullptr;
  std::int64_t number_ = 0;
};

// Steps of the unrolled body.
std::int64_t unrolled_steps(const Body& body);
// Bytes that the body's nodes hold.
std::size_t memory_bytes(const Body& body);
// The largest `count` of any step of the program; at least 1.
int max_step_count(const RankProgram& program);
int max_step_count(const Plan& plan);

}  // namespace unisono::plan
