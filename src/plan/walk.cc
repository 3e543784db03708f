#include "plan/walk.h"

#include <algorithm>

namespace unisono::plan {

StepCursor::StepCursor(const Body& body) {
  frames_[0] = {&body, 0, 0};
  settle();
}

void StepCursor::advance() {
  ++number_;
  ++frames_[static_cast<std::size_t>(depth_)].position;
  settle();
}

// Moves from a position that may be a loop or the end of a body to the next step.
void StepCursor::settle() {
  while (true) {
    Frame& frame = frames_[static_cast<std::size_t>(depth_)];
    if (frame.position == frame.body->size()) {
      if (depth_ == 0) {
        step_ = nullptr;
        return;
      }
      const auto loop_depth = static_cast<std::size_t>(depth_ - 1);
      if (frame.iterations_left > 0) {
        --frame.iterations_left;
        frame.position = 0;
        ++loops_[loop_depth];
      } else {
        loops_[loop_depth] = 0;
        --depth_;
        ++frames_[loop_depth].position;
      }
      continue;
    }
    const Node& node = (*frame.body)[frame.position];
    if (const Step* step = std::get_if<Step>(&node)) {
      step_ = step;
      return;
    }
    const Loop& loop = std::get<Loop>(node);
    if (loop.count <= 0 || loop.body.empty() || depth_ == max_loop_depth) {
      ++frame.position;
      continue;
    }
    ++depth_;
    frames_[static_cast<std::size_t>(depth_)] = {&loop.body, 0, loop.count - 1};
  }
}

std::int64_t unrolled_steps(const Body& body) {
  std::int64_t steps = 0;
  for (const Node& node : body) {
    if (const Loop* loop = std::get_if<Loop>(&node))
      steps += loop->count * unrolled_steps(loop->body);
    else
      ++steps;
  }
  return steps;
}

std::size_t memory_bytes(const Body& body) {
  std::size_t bytes = body.capacity() * sizeof(Node);
  for (const Node& node : body) {
    if (const Loop* loop = std::get_if<Loop>(&node))
      bytes += memory_bytes(loop->body);
    else
      bytes += std::get<Step>(node).after.capacity() * sizeof(Dependency);
  }
  return bytes;
}

namespace {

int max_count_in(const Body& body) {
  int most = 1;
  for (const Node& node : body) {
    if (const Loop* loop = std::get_if<Loop>(&node))
      most = std::max(most, max_count_in(loop->body));
    else
      most = std::max(most, std::get<Step>(node).count);
  }
  return most;
}

}  // namespace

int max_step_count(const RankProgram& program) {
  int most = 1;
  for (const ThreadBlock& thread_block : program.thread_blocks)
    most = std::max(most, max_count_in(thread_block.body));
  return most;
}

int max_step_count(const Plan& plan) {
  int most = 1;
  for (const RankProgram& program : plan.programs) most = std::max(most, max_step_count(program));
  return most;
}

}  // namespace unisono::plan
