// Plans put into one order for the copy engines: no GPU is needed.
#include "engine/gpu/copy_program.h"

#include <gtest/gtest.h>

#include "support/carried.h"

#include "algorithm/algorithm.h"
#include "base/str.h"
#include "plan/builder.h"
#include "topo/placement.h"

namespace unisono::engine::gpu {
namespace {

plan::Header header_of(int ranks) {
  plan::Header header;
  header.name = "test";
  header.collective = Collective::all_gather;
  header.ranks = ranks;
  plan::set_blocks(header);
  return header;
}

std::string text_of(const CopyProgram& program) {
  std::string out;
  for (const CopyStep& step : program.steps) {
    const auto with = [&] { return program.connections[static_cast<std::size_t>(step.link)].peer; };
    const auto place = [](const CopyStep::Place& of) {
      return str(plan::name(of.buffer), "[", of.chunk, "]");
    };
    if (step.kind == CopyStep::Kind::copy)
      out += str("copy ", place(step.from), " ", place(step.to), "; ");
    else if (step.kind == CopyStep::Kind::send)
      out += str("send ", place(step.from), " to ", with(), "; ");
    else
      out += str("receive ", place(step.to), " of ", with(), "; ");
  }
  return out;
}

Result<std::vector<CopyProgram>> lower_all(const algorithm::Entry& entry, int ranks) {
  const algorithm::Request request{.collective = entry.collective,
                                   .placement = topo::Placement::single_node(ranks)};
  std::vector<CopyProgram> programs;
  auto header = algorithm::make_header(entry, request);
  if (!header.ok()) return header.take_error();
  for (int rank = 0; rank < ranks; ++rank) {
    auto lowered = lower_to_copies(*header, *algorithm::make_program(entry, request, rank));
    if (!lowered.ok()) return lowered.take_error();
    programs.push_back(std::move(*lowered));
  }
  const Status order = check_order(*header, programs, 1);
  if (!order.ok()) return Error(order.error());
  return programs;
}

TEST(CopyProgram, SendsAllThatItCanBeforeItReceives) {
  const auto programs = lower_all(**algorithm::find(Collective::all_gather, "direct"), 3);
  ASSERT_TRUE(programs.ok()) << programs.error().describe();
  EXPECT_EQ(text_of((*programs)[1]),
            "copy input[0] output[1]; send input[0] to 2; send input[0] to 0; "
            "receive output[2] of 2; receive output[0] of 0; ");
}

TEST(CopyProgram, SendsOnWhatItReceived) {
  const auto programs = lower_all(**algorithm::find(Collective::all_gather, "ring"), 3);
  ASSERT_TRUE(programs.ok()) << programs.error().describe();
  const std::string text = text_of((*programs)[0]);
  EXPECT_NE(text.find("receive output[2] of 2; send output[2] to 1; receive output[1] of 2; "),
            std::string::npos)
      << text;
}

TEST(CopyProgram, KnowsWhatIsSentOnAndWhatMayComeEarly) {
  const auto programs = lower_all(**algorithm::find(Collective::broadcast, "two_shot"), 3);
  ASSERT_TRUE(programs.ok()) << programs.error().describe();
  for (const CopyStep& step : (*programs)[0].steps) EXPECT_EQ(step.received_by, -1);
  const std::vector<CopyStep>& steps = (*programs)[1].steps;
  ASSERT_EQ(text_of((*programs)[1]),
            "receive output[0] of 0; send output[0] to 2; receive output[1] of 2; ");
  EXPECT_TRUE(steps[0].is_sent_on && steps[0].comes_early);
  EXPECT_EQ(steps[1].received_by, 0);
  EXPECT_TRUE(!steps[2].is_sent_on && steps[2].comes_early);
}

TEST(CopyProgram, WhatIsReadBeforeMayNotComeEarly) {
  const algorithm::Entry& entry = **algorithm::find(Collective::all_to_all, "direct");
  for (const bool in_place : {false, true}) {
    const algorithm::Request request{.collective = entry.collective,
                                     .placement = topo::Placement::single_node(3),
                                     .in_place = in_place};
    if (!entry.supports(request).ok()) continue;
    const auto lowered = lower_to_copies(algorithm::make_header(entry, request).value(),
                                         algorithm::make_program(entry, request, 0).value());
    ASSERT_TRUE(lowered.ok()) << lowered.error().describe();
    for (const CopyStep& step : lowered->steps)
      if (step.kind == CopyStep::Kind::receive) {
        EXPECT_EQ(step.comes_early, !in_place);
      }
  }
}

TEST(CopyProgram, PlansOfUpToTwoHopsAreZeroCopy) {
  EXPECT_EQ(test::zero_copy_hops(**algorithm::find(Collective::all_gather, "direct"), 8), 1);
  EXPECT_EQ(test::zero_copy_hops(**algorithm::find(Collective::all_gather, "direct"), 17), 0);
  EXPECT_EQ(test::zero_copy_hops(**algorithm::find(Collective::all_gather, "ring"), 8), 0);
  EXPECT_EQ(test::zero_copy_hops(**algorithm::find(Collective::broadcast, "two_shot"), 8), 2);
  EXPECT_EQ(test::zero_copy_hops(**algorithm::find(Collective::broadcast, "knomial4"), 4), 1);
  EXPECT_EQ(test::zero_copy_hops(**algorithm::find(Collective::gather, "knomial4"), 5), 1);
  EXPECT_EQ(test::zero_copy_hops(**algorithm::find(Collective::gather, "knomial4"), 6), 0);
}

// Every collective that combines nothing has a plan that the copy engines can run.
TEST(CopyProgram, EveryCollectiveWithoutReductionHasAPlan) {
  for (int ranks : {1, 2, 4, 5, 8})
    for (int i = 0; i <= static_cast<int>(Collective::barrier); ++i) {
      const auto collective = static_cast<Collective>(i);
      int plans = 0;
      for (const algorithm::Entry* entry : algorithm::entries_for(collective))
        plans += lower_all(*entry, ranks).ok() ? 1 : 0;
      EXPECT_EQ(plans > 0, ranks == 1 || !is_reduction(collective)) << name(collective);
    }
}

TEST(CopyProgram, RefusesReductionsAndOrdersThatWaitForEachOther) {
  plan::ProgramBuilder reduces(0);
  reduces.block(0, -1, -1).reduce(plan::input(0), plan::output(0));
  const auto refused = lower_to_copies(header_of(2), reduces.take());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("copy engine"), std::string::npos)
      << refused.error().message;

  std::vector<CopyProgram> programs;
  for (int rank : {0, 1}) {
    plan::ProgramBuilder builder(rank);
    auto block = builder.block(0, 1 - rank, 1 - rank);
    block.recv(plan::output(1 - rank));
    block.send(plan::input(0));
    programs.push_back(lower_to_copies(header_of(2), builder.take()).value());
  }
  const Status stuck = check_order(header_of(2), programs, 2);
  ASSERT_FALSE(stuck.ok());
  EXPECT_NE(stuck.error().message.find("rank 0 would deadlock at step 1 of 2"), std::string::npos)
      << stuck.error().message;
}

// Both ends take one message before the other would have room for the second.
TEST(CopyProgram, AnOrderMayNeedSlots) {
  std::vector<CopyProgram> programs;
  for (int rank : {0, 1}) {
    plan::ProgramBuilder builder(rank);
    auto block = builder.block(0, 1 - rank, 1 - rank);
    for (int i = 0; i < 2; ++i) block.send(plan::input(0));
    for (int i = 0; i < 2; ++i) block.recv(plan::output(1 - rank));
    programs.push_back(lower_to_copies(header_of(2), builder.take()).value());
  }
  EXPECT_FALSE(check_order(header_of(2), programs, 1).ok());
  EXPECT_TRUE(check_order(header_of(2), programs, 2).ok());
}

}  // namespace
}  // namespace unisono::engine::gpu
