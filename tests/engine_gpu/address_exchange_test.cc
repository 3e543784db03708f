// Which messages may be zero-copy: no GPU is needed.
#include <gtest/gtest.h>

#include <algorithm>

#include "algorithm/algorithm.h"
#include "engine/gpu/lower.h"
#include "plan/builder.h"
#include "topo/placement.h"

namespace unisono::engine::gpu {
namespace {

constexpr int ranks = 4;

struct Marked {
  int receives = 0;
  int posted = 0;
};

Marked mark(Collective collective, const char* name, bool in_place, int rank = 1) {
  const auto entry = algorithm::find(collective, name);
  EXPECT_TRUE(entry.ok());
  const algorithm::Request request{.collective = collective,
                                   .placement = topo::Placement::single_node(ranks),
                                   .in_place = in_place,
                                   .channels = 2};
  const auto header = algorithm::make_header(**entry, request);
  const auto program = algorithm::make_program(**entry, request, rank);
  EXPECT_TRUE(header.ok() && program.ok());
  const auto lowered = lower(*header, *program);
  EXPECT_TRUE(lowered.ok());
  Marked out;
  for (const device::Step& step : lowered->steps) {
    out.receives += (step.flags & device::takes_message) != 0;
    out.posted += step.in_address != 0;
  }
  EXPECT_EQ(lowered->has_addresses, out.posted > 0);
  return out;
}

plan::Header header_of(Collective collective, bool in_place) {
  plan::Header header;
  header.name = "test";
  header.collective = collective;
  header.ranks = 3;
  header.chunks_per_block = 3;
  header.in_place = in_place;
  plan::set_blocks(header);
  return header;
}

TEST(PeerAddresses, ReceiveOnlyOutputsAreZeroCopy) {
  for (const auto& [collective, name] : {std::pair{Collective::all_gather, "direct"},
                                         {Collective::all_gather, "ring"},
                                         {Collective::all_to_all_v, "direct"},
                                         {Collective::broadcast, "ring"}}) {
    for (const bool in_place : {false, true}) {
      if (in_place && collective != Collective::all_gather) continue;
      const Marked marked = mark(collective, name, in_place);
      EXPECT_GT(marked.receives, 0) << name;
      EXPECT_EQ(marked.posted, marked.receives) << name << (in_place ? " in place" : "");
    }
  }
}

TEST(PeerAddresses, WhatIsCombinedDoesNot) {
  EXPECT_EQ(mark(Collective::reduce_scatter, "direct", false).posted, 0);
  const Marked half = mark(Collective::all_reduce, "two_shot", false);
  EXPECT_GT(half.posted, 0);
  EXPECT_LT(half.posted, half.receives);
}

// The place where it goes is read before.
TEST(PeerAddresses, WhatTakesThePlaceOfDataDoesNot) {
  EXPECT_EQ(mark(Collective::all_reduce, "two_shot", true).posted, 0);
  EXPECT_EQ(mark(Collective::all_to_all, "direct", true).posted, 0);
  EXPECT_GT(mark(Collective::all_to_all, "direct", false).posted, 0);
}

TEST(PeerAddresses, AStepThatWaitsForTheMessageMayUseItsPlace) {
  const auto posted = [](bool waits) {
    plan::ProgramBuilder builder(0);
    builder.block(0, -1, 1).recv(plan::output(0));
    auto middle = builder.block(0, -1, -1);
    if (waits) middle.after(0, 1);
    middle.copy(plan::input(1), plan::output(1));
    auto last = builder.block(0, -1, -1);
    last.after(1, 1);
    last.copy(plan::output(0), plan::scratch(0));
    builder.need_scratch(1);
    const auto lowered = lower(header_of(Collective::all_reduce, false), builder.take());
    EXPECT_TRUE(lowered.ok()) << lowered.error().describe();
    return lowered->has_addresses;
  };
  EXPECT_TRUE(posted(true));
  EXPECT_FALSE(posted(false));
}

TEST(PeerAddresses, BothEndsNumberAlike) {
  for (int sender = 0; sender < ranks; ++sender)
    for (int receiver = 0; receiver < ranks; ++receiver) {
      if (sender == receiver) continue;
      const algorithm::Entry& entry = **algorithm::find(Collective::all_gather, "ring");
      const algorithm::Request request{.collective = Collective::all_gather,
                                       .placement = topo::Placement::single_node(ranks)};
      const auto numbers = [&](int rank, int peer, bool sends) {
        const auto header = algorithm::make_header(entry, request);
        const auto lowered = lower(*header, *algorithm::make_program(entry, request, rank));
        std::vector<int> out;
        for (const device::Block& block : lowered->blocks) {
          const std::int32_t link = sends ? block.send_link : block.recv_link;
          if (link < 0 || lowered->connections[static_cast<std::size_t>(link)].peer != peer)
            continue;
          for (std::uint32_t i = 0; i < block.steps; ++i) {
            const device::Step& step = lowered->steps[block.first_step + i];
            const auto flag = sends ? device::gives_message : device::takes_message;
            if ((step.flags & flag) != 0) out.push_back(sends ? step.out_address : step.in_address);
          }
        }
        return out;
      };
      EXPECT_EQ(numbers(sender, receiver, true), numbers(receiver, sender, false));
    }
}

}  // namespace
}  // namespace unisono::engine::gpu
