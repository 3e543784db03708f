#include "plan/walk.h"

#include <gtest/gtest.h>

#include "plan/sample_plans.h"
#include "support/random_plan.h"

namespace unisono::plan {
namespace {

struct Visit {
  const Step* step;
  LoopValues loops;
  bool operator==(const Visit&) const = default;
};

// The same order by recursion.
void unroll(const Body& body, std::size_t depth, LoopValues loops, std::vector<Visit>& out) {
  for (const Node& node : body) {
    if (const Step* step = std::get_if<Step>(&node)) {
      out.push_back({step, loops});
      continue;
    }
    const Loop& loop = std::get<Loop>(node);
    for (loops[depth] = 0; loops[depth] < loop.count; ++loops[depth])
      unroll(loop.body, depth + 1, loops, out);
    loops[depth] = 0;
  }
}

TEST(StepCursor, GoesThroughTheStepsInTheOrderOfTheLoops) {
  int blocks = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Plan plan = test::random_plan(seed);
    for (const RankProgram& program : plan.programs)
      for (const ThreadBlock& block : program.thread_blocks) {
        std::vector<Visit> expected;
        unroll(block.body, 0, {}, expected);
        std::vector<Visit> visited;
        for (StepCursor at(block.body); at.step() != nullptr; at.advance()) {
          ASSERT_EQ(at.number(), static_cast<std::int64_t>(visited.size()));
          visited.push_back({at.step(), at.loops()});
        }
        ASSERT_EQ(visited, expected) << "seed " << seed;
        ASSERT_EQ(unrolled_steps(block.body), static_cast<std::int64_t>(expected.size()));
        ++blocks;
      }
  }
  EXPECT_GT(blocks, 1000);
}

TEST(StepCursor, PassesEmptyBodiesAndLoops) {
  const Body nothing;
  EXPECT_EQ(StepCursor(nothing).step(), nullptr);
  const Body empty_loops{Loop{3, {}}, Loop{0, {Step{}}}, Loop{2, {Loop{2, {}}}}};
  EXPECT_EQ(StepCursor(empty_loops).step(), nullptr);
}

TEST(MaxStepCount, LooksIntoLoopsAndIsAtLeastOne) {
  EXPECT_EQ(max_step_count(RankProgram{}), 1);
  EXPECT_EQ(max_step_count(test::ring().programs[0]), 1);
  EXPECT_EQ(max_step_count(test::nested().programs[0]), 4);
  EXPECT_EQ(max_step_count(test::nested()), 4);
  RankProgram program;
  program.thread_blocks.push_back({.body = {Loop{2, {Loop{2, {Step{.count = 9}}}}}}});
  EXPECT_EQ(max_step_count(program), 9);
}

}  // namespace
}  // namespace unisono::plan
