// Steps written in loops are the steps that were asked for.
#include "algorithm/parts/sequence.h"

#include <gtest/gtest.h>

#include <random>

#include "plan/walk.h"

namespace unisono::algorithm {
namespace {

struct Wanted {
  plan::Operation operation;
  std::int64_t from, to;
  int count;
};

plan::RankProgram written(const StepList& steps, std::int64_t modulus = 0) {
  plan::ProgramBuilder builder(0);
  plan::BlockBuilder block = builder.block(0, 1, 1);
  steps.write_to(block, modulus);
  EXPECT_EQ(block.steps(), plan::unrolled_steps(builder.take().thread_blocks[0].body));
  plan::ProgramBuilder again(0);
  plan::BlockBuilder same = again.block(0, 1, 1);
  steps.write_to(same, modulus);
  return again.take();
}

void expect_steps(const plan::RankProgram& program, const std::vector<Wanted>& wanted) {
  std::size_t i = 0;
  for (plan::StepCursor cursor(program.thread_blocks[0].body); cursor.step() != nullptr;
       cursor.advance(), ++i) {
    ASSERT_LT(i, wanted.size());
    const plan::Step& step = *cursor.step();
    ASSERT_EQ(step.operation, wanted[i].operation) << "step " << i;
    ASSERT_EQ(step.count, wanted[i].count) << "step " << i;
    if (plan::reads_source(step.operation)) {
      ASSERT_EQ(step.source.index.at(cursor.loops()), wanted[i].from) << "step " << i;
    }
    if (plan::writes_destination(step.operation)) {
      ASSERT_EQ(step.destination.index.at(cursor.loops()), wanted[i].to) << "step " << i;
    }
  }
  EXPECT_EQ(i, wanted.size());
}

TEST(StepList, WritesEveryStepInOrderWhateverTheSequence) {
  std::mt19937 random(20);
  for (int trial = 0; trial < 3000; ++trial) {
    const auto modulus = static_cast<std::int64_t>(40 + random() % 3);
    // Pieces of progressions and noise: what a ring may look like, and what not.
    StepList steps;
    std::vector<Wanted> wanted;
    for (std::size_t piece = random() % 6; piece > 0; --piece) {
      const std::int64_t first = random() % 40;
      const std::int64_t stride = random() % 40;
      const std::int64_t shift = random() % 3;
      const int count = 1 + static_cast<int>(random() % 2);
      const bool mixed = random() % 2 == 0;
      const int copies = 1 + static_cast<int>(random() % 4);
      const int length = static_cast<int>(random() % 5);
      for (int copy = 0; copy < copies; ++copy)
        for (int i = 0; i < length; ++i) {
          const std::int64_t from = (first + i * stride + copy * shift) % modulus;
          const std::int64_t to = (first + i * stride * 2 + copy) % modulus;
          const algorithm::Run source{plan::input(from), count};
          const algorithm::Run target{plan::output(to), count};
          if (mixed && i == 0) {
            steps.send(source);
            wanted.push_back({plan::Operation::send, from, 0, count});
          } else {
            steps.recv_reduce_copy(source, target);
            wanted.push_back({plan::Operation::recv_reduce_copy, from, to, count});
          }
        }
    }
    expect_steps(written(steps, modulus), wanted);
    if (HasFatalFailure()) return;
  }
}

TEST(StepList, ATransposeIsANestOfTwoLoops) {
  StepList steps;
  for (std::int64_t row = 0; row < 50; ++row)
    for (std::int64_t column = 0; column < 8; ++column)
      steps.copy({plan::scratch(column * 50 + row), 1}, {plan::output(row * 8 + column), 1});
  const plan::RankProgram program = written(steps);
  EXPECT_EQ(program.thread_blocks[0].body.size(), 1U);
  EXPECT_EQ(plan::unrolled_steps(program.thread_blocks[0].body), 400);
}

TEST(StepList, RoundsOfARingAreOneLoop) {
  StepList steps;
  for (std::int64_t round = 0; round < 100; ++round) {
    steps.send({plan::output(round * 8 + 3), 1});
    for (std::int64_t rank : {2, 1, 0, 7, 6, 5})
      steps.recv_copy_send({plan::output(round * 8 + rank), 1});
    steps.recv({plan::output(round * 8 + 4), 1});
  }
  EXPECT_EQ(written(steps).thread_blocks[0].body.size(), 1U);
}

}  // namespace
}  // namespace unisono::algorithm
