// Thread blocks that the program names, the limits of a target, and the proof after every pass.
#include <gtest/gtest.h>

#include <algorithm>

#include "compile/compile.h"
#include "compile/passes.h"
#include "plan/foreign.h"
#include "programs.h"
#include "support/interpreter.h"

namespace unisono {
namespace {

using compile::Chunk;
using compile::Layout;
using compile::Options;
using compile::Trace;
using test::Writer;

// Two halves of a broadcast, each in a thread block of its own at both ends.
Writer two_halves(int second_channel, int second_block) {
  Writer p(Collective::broadcast, 2, 2, false);
  p.copy(p.take(0, Layout::input, 0, 2), 0, Layout::output, 0);
  EXPECT_TRUE(p.trace().set_thread_blocks({0, 1}, 0).ok());
  p.copy(p.take(0, Layout::input, 0), 1, Layout::output, 0, 0);
  EXPECT_TRUE(p.trace().set_thread_blocks({second_block, 0}, 0).ok());
  p.copy(p.take(0, Layout::input, 1), 1, Layout::output, 1, second_channel);
  return p;
}

TEST(ThreadBlocks, AreThoseThatTheProgramNames) {
  Writer p = two_halves(1, 1);
  const auto compiled = compile::compile(p.trace(), {.check_passes = true});
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  EXPECT_EQ(test::find_fault(compiled->plan, 6, 7, 2).value_or(""), "");
  const auto& sender = compiled->plan.programs[0].thread_blocks;
  const auto& receiver = compiled->plan.programs[1].thread_blocks;
  EXPECT_EQ(sender[0].channel, 0);
  EXPECT_EQ(sender[1].channel, 1);
  // Numbered the other way round at the receiver.
  EXPECT_EQ(receiver[0].channel, 1);
  EXPECT_EQ(receiver[1].channel, 0);
}

TEST(ThreadBlocks, HaveOnePeerEachWayAndAConnectionOne) {
  Writer shared = two_halves(0, 1);
  auto refused = compile::compile(shared.trace(), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "thread block 1 of rank 0 sends to rank 1 on channel 0, as thread block 0 does; a "
            "connection belongs to one thread block, so use another channel");

  Writer p(Collective::broadcast, 3, 1, false);
  p.copy(p.take(0, Layout::input, 0), 0, Layout::output, 0);
  EXPECT_TRUE(p.trace().set_thread_blocks({2, {}}, 0).ok());
  for (const int rank : {1, 2}) p.copy(p.take(0, Layout::input, 0), rank, Layout::output, 0);
  refused = compile::compile(p.trace(), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "thread block 2 of rank 0 sends to rank 1, but here rank 2; a thread block has one "
            "peer in each direction, so use another thread block");
}

TEST(Targets, AreRefusedWhatTheyCannotCarry) {
  const auto refusal = [](Trace trace, std::string_view target) -> std::string {
    const auto found = plan::find_foreign_executor(target);
    EXPECT_TRUE(found.ok());
    trace.set_home("prog.py", 7);
    const auto compiled = compile::compile(trace, {.target = *found});
    return compiled.ok() ? "" : compiled.error().message;
  };
  EXPECT_EQ(refusal(test::ring_all_reduce(8), "rccl"), "");
  // 2 * 40 - 1 steps in one thread block.
  EXPECT_EQ(
      refusal(test::ring_all_reduce(40), "rccl"),
      "prog.py:7: this step exceeds the 64 steps of a thread block that rccl supports (thread "
      "block 0 of rank 0); use more channels, which divide the steps among thread blocks");
  EXPECT_EQ(refusal(test::ring_all_reduce(40), "msccl"), "");
  EXPECT_EQ(refusal(test::all_pairs_all_reduce(36), "msccl"),
            "prog.py:7: rank 0 needs more than 32 thread blocks on channel 0, the most that msccl "
            "supports; spread the messages over channels");
  EXPECT_EQ(refusal(test::ring_all_reduce(2), "mscclpp"),
            "prog.py:7: this step becomes send on rank 0, which mscclpp cannot run");
  Writer wide(Collective::broadcast, 2, 100, false);
  wide.copy(wide.take(0, Layout::input, 0, 100), 0, Layout::output, 0);
  wide.copy(wide.take(0, Layout::input, 0, 100), 1, Layout::output, 0);
  EXPECT_EQ(refusal(std::move(wide.trace()), "rccl"), "");  // moved in parts
  const auto unknown = plan::find_foreign_executor("nccl");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message,
            "there is no target 'nccl'; did you mean executor-nccl or rccl or msccl?");
}

// What aggregation joins, a target must be able to move.
TEST(Targets, BoundWhatIsJoined) {
  Writer p(Collective::broadcast, 2, 100, false);
  for (int i = 0; i < 100; ++i) {
    p.copy(p.take(0, Layout::input, i), 0, Layout::output, i);
    p.copy(p.take(0, Layout::input, i), 1, Layout::output, i);
  }
  const auto compiled =
      compile::compile(p.trace(), {.target = *plan::find_foreign_executor("rccl")});
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  EXPECT_EQ(compiled->messages, 2);
}

// A pass that turns the chunks of the last result round.
Status turn_a_result(compile::Module& module) {
  for (std::size_t i = module.instruction_count(); i-- > 0;) {
    compile::Instruction& one = module.instructions[i];
    if (one.operation != plan::Operation::recv) continue;
    one.destination = one.destination == 0 ? 1 : 0;
    return {};
  }
  return {};
}

TEST(CheckedPasses, NameThePassThatBreaksAProgram) {
  const Trace trace = test::ring_all_reduce(4);
  std::vector<compile::Pass> passes(compile::passes().begin(), compile::passes().end());
  ASSERT_TRUE(compile::compile(trace, {.check_passes = true}, passes).ok());
  const auto fuse = std::ranges::find(passes, "fuse", &compile::Pass::name);
  passes.insert(fuse, {"turn", &turn_a_result, "a mistake", true});
  const auto broken = compile::compile(trace, {.check_passes = true}, passes);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().kind, ErrorKind::bug);
  EXPECT_NE(broken.error().message.find("the pass turn broke program program"), std::string::npos)
      << broken.error().message;
  // At the end it is found in any case, without a name.
  const auto unchecked = compile::compile(trace, {}, passes);
  ASSERT_FALSE(unchecked.ok());
  EXPECT_NE(unchecked.error().message.find("the compiler made a plan that fails verification"),
            std::string::npos);
}

}  // namespace
}  // namespace unisono
