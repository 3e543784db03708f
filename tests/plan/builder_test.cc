#include "plan/builder.h"

#include <gtest/gtest.h>

#include "plan/text.h"
#include "plan/walk.h"

namespace unisono::plan {
namespace {

const Step& first_step(const RankProgram& program) {
  return std::get<Step>(program.thread_blocks[0].body[0]);
}

TEST(BlockBuilder, WritesEachOperationWithItsOperands) {
  ProgramBuilder builder(3);
  BlockBuilder block = builder.block(1, 2, 4);
  EXPECT_EQ(block.send(input(1), 2), 1);
  block.recv(output(2));
  block.copy(input(3), scratch(4));
  block.reduce(input(5), output(6));
  block.copy_send(input(7), output(8));
  block.recv_copy_send(output(9));
  block.recv_reduce_copy(input(10), output(11));
  block.recv_reduce_send(input(12));
  EXPECT_EQ(block.recv_reduce_copy_send(input(13), output(14)), 9);
  builder.need_scratch(5);
  builder.need_scratch(2);
  EXPECT_EQ(print(Header{.name = "p", .ranks = 5}, builder.take()),
            "plan p version 1\n"
            "collective all_reduce ranks 5\n"
            "protocol simple channels 1 in_place no\n"
            "chunks 1 input_blocks 1 output_blocks 1\n"
            "bytes 0..\n"
            "\n"
            "rank 3 scratch 5\n"
            "  block 0 channel 1 send 2 recv 4\n"
            "    send                     input[1] x2\n"
            "    recv                     -> output[2]\n"
            "    copy                     input[3] -> scratch[4]\n"
            "    reduce                   input[5] -> output[6]\n"
            "    copy_send                input[7] -> output[8]\n"
            "    recv_copy_send           -> output[9]\n"
            "    recv_reduce_copy         input[10] -> output[11]\n"
            "    recv_reduce_send         input[12]\n"
            "    recv_reduce_copy_send    input[13] -> output[14]\n");
}

TEST(BlockBuilder, CountsUnrolledStepsAndDropsEmptyLoops) {
  ProgramBuilder builder(0);
  BlockBuilder block = builder.block(0, -1, -1);
  block.loop(3);
  block.copy(input(0), output(0));
  block.loop(4);
  block.copy(input(0), output(0));
  block.copy(input(0), output(0));
  block.end_loop();
  block.end_loop();
  EXPECT_EQ(block.steps(), 27);
  block.loop(0);
  block.copy(input(0), output(0));
  block.end_loop();
  block.loop(5);
  block.end_loop();
  EXPECT_EQ(block.steps(), 27);
  const RankProgram program = builder.take();
  EXPECT_EQ(program.thread_blocks[0].body.size(), 1U);
  EXPECT_EQ(unrolled_steps(program.thread_blocks[0].body), 27);
}

TEST(BlockBuilder, WaitsBelongToTheNextStepOnly) {
  ProgramBuilder builder(0);
  BlockBuilder block = builder.block(0, -1, -1);
  BlockBuilder other = builder.block(0, -1, -1);
  other.copy(input(0), output(0));
  block.after(other).after(1, 5).copy(input(0), output(0));
  block.copy(input(0), output(0));
  const RankProgram program = builder.take();
  EXPECT_EQ(first_step(program).after, (std::vector<Dependency>{{1, 1}, {1, 5}}));
  EXPECT_TRUE(std::get<Step>(program.thread_blocks[0].body[1]).after.empty());
}

TEST(BlockBuilder, LeavesOutWaitsThatNeverWait) {
  ProgramBuilder builder(0);
  BlockBuilder block = builder.block(0, -1, -1);
  BlockBuilder other = builder.block(0, -1, -1);
  block.after(other).after(block).after(0, 3).copy(input(0), output(0));
  EXPECT_TRUE(first_step(builder.take()).after.empty());
}

TEST(BlockBuilder, StaysValidWhileOthersAreAdded) {
  ProgramBuilder builder(0);
  std::vector<BlockBuilder> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(builder.block(i, -1, -1));
  for (BlockBuilder& block : blocks) block.copy(input(block.index()), output(0));
  const RankProgram program = builder.take();
  ASSERT_EQ(program.thread_blocks.size(), 100U);
  for (std::size_t i = 0; i < 100; ++i)
    EXPECT_EQ(std::get<Step>(program.thread_blocks[i].body[0]).source.index,
              Index(static_cast<std::int64_t>(i)));
}

TEST(Affine, IsTheFormulaOfItsComment) {
  const Index index = affine(2, -3, 5, 10, 100);
  for (std::int64_t i = 0; i < 20; ++i)
    EXPECT_EQ(index.at({i, 7}), 100 + 10 * (((2 - 3 * i) % 5 + 5) % 5));
  EXPECT_EQ(affine(2, -3).at({4, 0}), -10);
}

}  // namespace
}  // namespace unisono::plan
