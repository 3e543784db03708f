// Lowering of plans for the kernels: no GPU is needed.
#include <gtest/gtest.h>

#include "algorithm/algorithm.h"
#include "engine/gpu/lower.h"
#include "plan/builder.h"
#include "plan/walk.h"
#include "topo/placement.h"

namespace unisono::engine::gpu {
namespace {

plan::Header header_of(int ranks) {
  plan::Header header;
  header.name = "test";
  header.ranks = ranks;
  header.chunks_per_block = ranks;
  plan::set_blocks(header);
  return header;
}

TEST(Lowering, UnrollsLoopsAndSaysWhatEachStepTakesAndGives) {
  plan::ProgramBuilder builder(0);
  auto block = builder.block(0, 1, 2);
  block.send(plan::input(0));
  block.loop(2);
  block.recv_reduce_copy_send(plan::input(plan::affine(1, 1)), plan::output(plan::affine(1, 1)));
  block.end_loop();
  const auto lowered = lower(header_of(3), builder.take());
  ASSERT_TRUE(lowered.ok()) << lowered.error().describe();
  ASSERT_EQ(lowered->steps.size(), 3U);
  EXPECT_EQ(lowered->steps[0].flags, device::takes_source | device::gives_message);
  EXPECT_EQ(lowered->steps[2].flags, device::takes_message | device::takes_source |
                                         device::gives_destination | device::gives_message);
  EXPECT_EQ(lowered->steps[1].source, 1);
  EXPECT_EQ(lowered->steps[2].source, 2);
  EXPECT_EQ(lowered->steps[2].number, 2);
  ASSERT_EQ(lowered->connections.size(), 2U);
  EXPECT_EQ(lowered->connections[static_cast<std::size_t>(lowered->blocks[0].send_link)].peer, 1);
  EXPECT_EQ(lowered->connections[static_cast<std::size_t>(lowered->blocks[0].recv_link)].peer, 2);
}

TEST(Lowering, OnlyStepsThatAreWaitedForPublish) {
  plan::ProgramBuilder builder(0);
  auto first = builder.block(0, -1, -1);
  first.copy(plan::input(0), plan::output(0));
  first.copy(plan::input(1), plan::output(1));
  auto second = builder.block(0, -1, -1);
  second.after(0, 1);
  second.reduce(plan::input(0), plan::output(0));
  const auto lowered = lower(header_of(2), builder.take());
  ASSERT_TRUE(lowered.ok()) << lowered.error().describe();
  EXPECT_TRUE(lowered->steps[0].flags & device::publishes);
  EXPECT_FALSE(lowered->steps[1].flags & device::publishes);
  EXPECT_TRUE(lowered->steps[2].flags & device::takes_destination);
  EXPECT_EQ(lowered->steps[2].dependencies, 1);
}

TEST(Lowering, RefusesChunksOfUnequalPlaces) {
  plan::ProgramBuilder builder(0);
  builder.block(0, -1, -1).copy(plan::input(0), plan::output(1));
  const auto lowered = lower(header_of(2), builder.take());
  ASSERT_FALSE(lowered.ok());
  EXPECT_NE(lowered.error().message.find("from chunk 0 to chunk 1"), std::string::npos);
}

TEST(Lowering, TakesEveryBuiltInPlanOfOneNode) {
  for (const algorithm::Entry& entry : algorithm::entries()) {
    const algorithm::Request request{.collective = entry.collective,
                                     .placement = topo::Placement::single_node(4)};
    if (!entry.supports(request).ok()) continue;
    for (int rank = 0; rank < 4; ++rank) {
      const auto header = algorithm::make_header(entry, request);
      const auto program = algorithm::make_program(entry, request, rank);
      ASSERT_TRUE(header.ok() && program.ok());
      const auto lowered = lower(*header, *program);
      ASSERT_TRUE(lowered.ok()) << lowered.error().describe();
      EXPECT_EQ(lowered->blocks.size(), program->thread_blocks.size());
      for (std::size_t i = 0; i < lowered->blocks.size(); ++i)
        EXPECT_EQ(lowered->blocks[i].steps, plan::unrolled_steps(program->thread_blocks[i].body));
    }
  }
}

}  // namespace
}  // namespace unisono::engine::gpu
