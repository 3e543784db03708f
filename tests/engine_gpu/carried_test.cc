// Plans are known by what they do, not by their names.
#include "engine/gpu/carried.h"

#include <gtest/gtest.h>

#include "engine/gpu/copy_program.h"
#include "engine/gpu/direct.h"
#include "engine/gpu/lines.h"

namespace unisono::engine::gpu {
namespace {

plan::Plan plan_of(const algorithm::Entry& entry, int ranks, int root, bool in_place,
                   Protocol protocol) {
  auto plan = algorithm::make_plan(entry, {.collective = entry.collective,
                                           .placement = topo::Placement::single_node(ranks),
                                           .root = root,
                                           .in_place = in_place,
                                           .protocol = protocol});
  EXPECT_TRUE(plan.ok()) << plan.error().describe();
  plan->header.name = "of_mine";
  return std::move(*plan);
}

// How a plan of the protocol goes: by which kernel of its own; 0: by none.
int carriage(const algorithm::Entry& entry, Protocol protocol, int ranks) {
  if (protocol == Protocol::simple) return straight_copy_hops(entry, ranks) > 0 ? 1 : 0;
  if (protocol == Protocol::ll128) return lines_hops(entry, ranks);
  const auto kind = direct_kind(entry, ranks);
  return kind ? 1 + static_cast<int>(*kind) : 0;
}

TEST(Carried, RenamedPlansOfBuiltInsAreKnown) {
  int known = 0;
  for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128})
    for (const algorithm::Entry& entry : algorithm::entries())
      for (const int ranks : {2, 3, 4, 5, 8})
        for (const bool in_place : {false, true}) {
          if (in_place && entry.collective == Collective::all_to_all_v) continue;
          if (carriage(entry, protocol, ranks) == 0) continue;
          const int root = has_root(entry.collective) ? ranks - 1 : 0;
          const algorithm::Entry* const found =
              reference_of(plan_of(entry, ranks, root, in_place, protocol));
          ASSERT_NE(found, nullptr) << entry.plan_name() << " of " << ranks;
          EXPECT_EQ(carriage(*found, protocol, ranks), carriage(entry, protocol, ranks))
              << entry.plan_name() << " of " << ranks << " as " << found->plan_name();
          ++known;
        }
  EXPECT_GT(known, 150);
}

TEST(Carried, ANameSaysNothing) {
  const algorithm::Entry& ring = **algorithm::find(Collective::all_reduce, "ring");
  for (const int ranks : {3, 4, 8}) {
    plan::Plan plan = plan_of(ring, ranks, 0, false, Protocol::ll128);
    plan.header.name = "two_shot_all_reduce";
    EXPECT_EQ(reference_of(plan), nullptr) << ranks;
  }
}

// One rank's part alone is another: all ranks know it.
TEST(Carried, AnotherOrderOfSumsOnOneRankIsAnotherPlan) {
  const algorithm::Entry& direct = **algorithm::find(Collective::reduce_scatter, "direct");
  plan::Plan plan = plan_of(direct, 3, 0, false, Protocol::ll);
  ASSERT_NE(reference_of(plan), nullptr);
  // Rank 1 takes what rank 0 sent first, and rank 2's after that.
  auto& blocks = plan.programs[1].thread_blocks;
  ASSERT_EQ(blocks.size(), 2U);
  std::swap(blocks[0].send_peer, blocks[1].send_peer);
  std::swap(blocks[0].recv_peer, blocks[1].recv_peer);
  for (plan::ThreadBlock& block : blocks) {
    auto& send = std::get<plan::Step>(block.body.front());
    ASSERT_EQ(send.operation, plan::Operation::send);
    send.source.index = plan::Index(block.send_peer);
  }
  EXPECT_EQ(reference_of(plan), nullptr);
}

}  // namespace
}  // namespace unisono::engine::gpu
