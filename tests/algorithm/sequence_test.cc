// Steps written in loops are the steps that were asked for.
#include <gtest/gtest.h>

#include <random>

#include "algorithm/sequence.h"
#include "plan/walk.h"

namespace unisono::algorithm {
namespace {

std::vector<std::int64_t> read_back(const std::vector<std::int64_t>& values, std::int64_t modulus) {
  plan::ProgramBuilder builder(0);
  plan::BlockBuilder block = builder.block(0, -1, 1);
  for_each_chunk(block, values, modulus,
                 [&](plan::Index index) { block.recv(plan::output(index)); });
  const plan::RankProgram program = builder.take();
  std::vector<std::int64_t> seen;
  for (plan::StepCursor cursor(program.thread_blocks[0].body); cursor.step() != nullptr;
       cursor.advance())
    seen.push_back(cursor.step()->destination.index.at(cursor.loops()));
  return seen;
}

TEST(ForEachChunk, GivesEveryChunkInOrderForAnySequence) {
  std::mt19937 random(20);
  for (int trial = 0; trial < 2000; ++trial) {
    const auto modulus = static_cast<std::int64_t>(1 + random() % 40);
    // Pieces of progressions and noise: what a ring may look like, and what not.
    std::vector<std::int64_t> values;
    for (std::size_t piece = random() % 8; piece > 0; --piece) {
      const auto first = static_cast<std::int64_t>(random() % 40);
      const auto stride = static_cast<std::int64_t>(random() % 40) - 20;
      const std::size_t copies = 1 + random() % 3;
      const auto length = static_cast<std::int64_t>(random() % 6);
      for (std::size_t copy = 0; copy < copies; ++copy)
        for (std::int64_t i = 0; i < length; ++i)
          values.push_back((((first + i * stride) % modulus) + modulus) % modulus);
    }
    ASSERT_EQ(read_back(values, modulus), values) << "trial " << trial;
  }
}

TEST(ForEachMove, GivesEveryMoveInOrderWithItsCount) {
  std::mt19937 random(21);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<Move> moves;
    for (std::size_t piece = random() % 6; piece > 0; --piece) {
      const auto from = static_cast<std::int64_t>(random() % 40);
      const auto to = static_cast<std::int64_t>(random() % 40);
      const auto step = static_cast<std::int64_t>(random() % 4);
      const int count = 1 + static_cast<int>(random() % 2);
      for (std::int64_t i = 0; i < 5; ++i)
        moves.push_back({{plan::input(from + i * step), count},
                         {plan::scratch(to + 4 * step - i * step), count}});
    }
    plan::ProgramBuilder builder(0);
    plan::BlockBuilder block = builder.block(0, -1, -1);
    for_each_move(block, moves, [&](plan::Location from, plan::Location to, int count) {
      block.copy(from, to, count);
    });
    const plan::RankProgram program = builder.take();
    std::size_t i = 0;
    for (plan::StepCursor cursor(program.thread_blocks[0].body); cursor.step() != nullptr;
         cursor.advance(), ++i) {
      ASSERT_LT(i, moves.size());
      const plan::Step& step = *cursor.step();
      EXPECT_EQ(step.source.index.at(cursor.loops()), moves[i].from.location.index.base);
      EXPECT_EQ(step.destination.index.at(cursor.loops()), moves[i].to.location.index.base);
      EXPECT_EQ(step.source.buffer, plan::Buffer::input);
      EXPECT_EQ(step.destination.buffer, plan::Buffer::scratch);
      EXPECT_EQ(step.count, moves[i].from.count);
    }
    EXPECT_EQ(i, moves.size());
  }
}

TEST(ForEachMove, ATransposeIsANestOfTwoLoops) {
  std::vector<Move> moves;
  for (std::int64_t row = 0; row < 50; ++row)
    for (std::int64_t column = 0; column < 8; ++column)
      moves.push_back({{plan::scratch(column * 50 + row), 1}, {plan::output(row * 8 + column), 1}});
  plan::ProgramBuilder builder(0);
  plan::BlockBuilder block = builder.block(0, -1, -1);
  for_each_move(block, moves, [&](plan::Location from, plan::Location to, int count) {
    block.copy(from, to, count);
  });
  const plan::RankProgram program = builder.take();
  EXPECT_EQ(program.thread_blocks[0].body.size(), 1U);
  EXPECT_EQ(plan::unrolled_steps(program.thread_blocks[0].body), 400);
}

}  // namespace
}  // namespace unisono::algorithm
