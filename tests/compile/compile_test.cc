// The compiler as a whole: right programs give proved plans that a second opinion agrees with.
#include "compile/compile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/str.h"
#include "plan/walk.h"
#include "programs.h"
#include "support/golden.h"
#include "support/interpreter.h"
#include "support/sanitized.h"

namespace unisono {
namespace {

using compile::Chunk;
using compile::Layout;
using compile::Options;
using compile::Trace;
using test::Writer;

// Compiles, and runs the plan on random numbers in random orders.
std::string fault_of(const Trace& trace, const Options& options) {
  const auto compiled = compile::compile(trace, options);
  if (!compiled.ok()) return compiled.error().message;
  return test::find_fault(compiled->plan, 6, 7, options.slots).value_or("");
}

std::int64_t steps_of(const plan::Plan& plan, plan::Operation operation) {
  std::int64_t steps = 0;
  for (const plan::RankProgram& program : plan.programs)
    for (const plan::ThreadBlock& block : program.thread_blocks)
      for (plan::StepCursor cursor(block.body); cursor.step() != nullptr; cursor.advance())
        steps += cursor.step()->operation == operation ? 1 : 0;
  return steps;
}

TEST(Compile, ProvesProgramsInPlaceAndOutOfPlaceWithAnyInstances) {
  for (const bool in_place : {false, true}) {
    for (const int instances : {1, 3}) {
      for (const int slots : test::is_sanitized ? std::vector{2} : std::vector{1, 2, 8}) {
        const Options options{.in_place = in_place, .instances = instances, .slots = slots};
        for (const int ranks : {1, 2, 5}) {
          EXPECT_EQ(fault_of(test::ring_all_reduce(ranks), options), "") << ranks;
          EXPECT_EQ(fault_of(test::all_pairs_all_reduce(ranks), options), "") << ranks;
        }
        if (!in_place) {
          EXPECT_EQ(fault_of(test::two_step_all_to_all(3, 2), options), "");
        }
      }
    }
  }
}

TEST(Compile, ProvesProgramsWithNothingFused) {
  EXPECT_EQ(fault_of(test::ring_all_reduce(4), {.fuse = false, .slots = 1}), "");
  EXPECT_EQ(fault_of(test::all_pairs_all_reduce(4, 2), {.fuse = false, .slots = 1}), "");
}

// What a person writes by hand for a ring: R - 1 chunks are passed on without being stored, one sum
// is completed and sent, R - 2 results are passed on.
TEST(Compile, FusesARingAsTheBuiltInOne) {
  const int ranks = 6;
  const auto compiled = compile::compile(test::ring_all_reduce(ranks), {});
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  using plan::Operation;
  EXPECT_EQ(steps_of(compiled->plan, Operation::send), ranks);
  EXPECT_EQ(steps_of(compiled->plan, Operation::recv_reduce_send), ranks * (ranks - 2));
  EXPECT_EQ(steps_of(compiled->plan, Operation::recv_reduce_copy_send), ranks);
  EXPECT_EQ(steps_of(compiled->plan, Operation::recv_copy_send), ranks * (ranks - 2));
  EXPECT_EQ(steps_of(compiled->plan, Operation::recv), ranks);
  EXPECT_EQ(compiled->steps, ranks * (2 * ranks - 1));
  for (const plan::RankProgram& program : compiled->plan.programs) {
    EXPECT_EQ(program.thread_blocks.size(), 1u);
    EXPECT_EQ(program.scratch_blocks, 0);
  }
}

// A ring of chunks that are many for each rank is the hard case for slots: everybody could send
// first, and nobody receive.
TEST(Compile, KeepsASlotFreeInRings) {
  const int ranks = 5;
  const int parts = 6;
  Writer p(Collective::all_reduce, ranks, ranks * parts, true);
  for (int i = 0; i < ranks * parts; ++i) {
    Chunk c = p.take((i + 1) % ranks, Layout::input, i);
    for (int step = 2; step <= ranks; ++step)
      c = p.reduce(p.take((i + step) % ranks, Layout::input, i), c);
    for (int step = 1; step < ranks; ++step) c = p.copy(c, (i + step) % ranks, Layout::output, i);
  }
  const auto compiled = compile::compile(p.trace(), {.slots = 2});
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  EXPECT_GT(steps_of(compiled->plan, plan::Operation::recv_reduce_send), 0);
  EXPECT_EQ(test::find_fault(compiled->plan, 6, 3, 2).value_or(""), "");
}

TEST(Compile, JoinsContiguousMovesByTheCostModel) {
  const auto writer = [] {
    Writer p(Collective::broadcast, 3, 8, true);
    for (int index = 0; index < 8; ++index) {
      Chunk c = p.copy(p.take(0, Layout::input, index), 1, Layout::output, index);
      p.copy(c, 2, Layout::output, index);
    }
    return p;
  };
  const auto messages = [&](const Options& options) {
    Writer p = writer();
    const auto compiled = compile::compile(p.trace(), options);
    EXPECT_TRUE(compiled.ok()) << compiled.error().message;
    return compiled.ok() ? compiled->messages : -1;
  };
  EXPECT_EQ(messages({.block_bytes = 0}), 2);
  // 8 chunks of 16 MB take 840 µs each: nobody waits for the others to save 5 µs. Nobody waits for
  // what the last rank gets: that is joined all the same.
  EXPECT_EQ(messages({.block_bytes = 128 << 20}), 8 + 1);
}

TEST(Compile, GivesOddPartsOfALargerBlockTheirOwnScratch) {
  // Chunk 2 of a block waits in a scratch buffer of one chunk, then chunk 0 does.
  Writer p(Collective::all_gather, 2, 3, false);
  const int scratch = p.scratch(1);
  for (int rank = 0; rank < 2; ++rank) {
    for (int index = 2; index >= 0; --index) {
      p.copy(p.take(rank, Layout::input, index), rank, Layout::output, 3 * rank + index);
      const Chunk c = p.copy(p.take(rank, Layout::input, index), 1 - rank, scratch, 0);
      p.copy(c, 1 - rank, Layout::output, 3 * rank + index);
    }
  }
  EXPECT_EQ(fault_of(p.trace(), {}), "");
}

// A random program: chunks of an all-gather find their way to everybody over random relays.
TEST(Compile, ProvesRandomPrograms) {
  for (int round = 0; round < (test::is_sanitized ? 6 : 40); ++round) {
    std::mt19937 random(static_cast<unsigned>(round) + 1);
    const int ranks = 2 + static_cast<int>(random() % 5);
    const int chunks = 1 + static_cast<int>(random() % 3);
    Writer p(Collective::all_gather, ranks, chunks, true);
    std::vector<std::vector<int>> holders(static_cast<std::size_t>(ranks * chunks));
    for (int i = 0; i < ranks * chunks; ++i) holders[static_cast<std::size_t>(i)] = {i / chunks};
    for (bool more = true; more;) {
      more = false;
      for (int i = 0; i < ranks * chunks; ++i) {
        auto& held = holders[static_cast<std::size_t>(i)];
        if (static_cast<int>(held.size()) == ranks || random() % 3 == 0) {
          more |= static_cast<int>(held.size()) < ranks;
          continue;
        }
        const int from = held[random() % held.size()];
        int to = static_cast<int>(random() % static_cast<unsigned>(ranks));
        while (std::ranges::find(held, to) != held.end()) to = (to + 1) % ranks;
        p.copy(p.take(from, Layout::output, i), to, Layout::output, i,
               static_cast<int>(random() % 3));
        held.push_back(to);
        more = true;
      }
    }
    Options options;
    options.in_place = random() % 2 == 0;
    options.instances = 1 + static_cast<int>(random() % 2);
    options.fuse = random() % 4 != 0;
    options.slots = 1 + static_cast<int>(random() % 3);
    EXPECT_EQ(fault_of(p.trace(), options), "") << "round " << round;
  }
}

TEST(Passes, AreShownByGoldenTexts) {
  const Trace trace = test::ring_all_reduce(3);
  std::string all = "# ring_all_reduce of 3 ranks, 2 instances, after every pass\n";
  const auto add = [&](std::string_view pass) {
    const auto text = compile::dump_after(trace, {.instances = 2}, pass);
    ASSERT_TRUE(text.ok()) << text.error().message;
    all += str("\n== ", pass, "\n", *text);
  };
  add("trace");
  for (const compile::Pass& pass : compile::passes()) add(pass.name);
  test::expect_golden("compile_ring_3.txt", all);
}

TEST(Passes, CollectParcelsAsTheGoldenTextShows) {
  const Trace trace = test::two_step_all_to_all(2, 2);
  std::string all = "# two_step_all_to_all of 2 nodes of 2 ranks\n";
  for (const std::string_view pass : {"aggregate", "fuse", "place"}) {
    const auto text = compile::dump_after(trace, {}, pass);
    ASSERT_TRUE(text.ok()) << text.error().message;
    all += str("\n== ", pass, "\n", *text);
  }
  test::expect_golden("compile_two_step_4.txt", all);
}

TEST(Passes, AreNamedWhenAnUnknownOneIsAskedFor) {
  const auto text = compile::dump_after(test::ring_all_reduce(2), {}, "optimise");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().message,
            "there is no pass 'optimise'; there are trace, replicate, aggregate, lower, fuse, "
            "assign, schedule, synchronise, place, fit");
}

}  // namespace
}  // namespace unisono
