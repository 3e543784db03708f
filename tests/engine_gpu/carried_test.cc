// Plans are known by what they do, not by their names.
#include "support/carried.h"

#include <gtest/gtest.h>

namespace unisono::engine::gpu {
namespace {

plan::Plan plan_of(const algorithm::Entry& entry, int ranks, int root, bool in_place) {
  auto plan = algorithm::make_plan(entry, {.collective = entry.collective,
                                           .placement = topo::Placement::single_node(ranks),
                                           .root = root,
                                           .in_place = in_place});
  EXPECT_TRUE(plan.ok()) << plan.error().describe();
  return std::move(*plan);
}

// By which kernel of its own a plan of the protocol goes; 0: by none.
int carriage(const plan::Exchange& exchange, Protocol protocol) {
  if (protocol == Protocol::simple) return zero_copy_hops(exchange);
  if (protocol == Protocol::ll128) return ll128_hops(exchange);
  const auto kind = ll_kind(exchange);
  return kind ? 1 + static_cast<int>(*kind) : 0;
}

struct Carried {
  Collective collective;
  const char* algorithm;
  int ranks;
  int simple;
  int ll;
  int ll128;
};

// What each kernel carries is what it was written for.
TEST(Carried, KernelsCarryTheAlgorithmsTheyWereWrittenFor) {
  constexpr int take = 1;
  constexpr int combine = 2;
  constexpr int two_shot = 3;
  for (const Carried& one : {Carried{Collective::all_reduce, "one_shot", 8, 0, combine, 0},
                             {Collective::all_reduce, "two_shot", 8, 0, two_shot, 2},
                             {Collective::all_reduce, "two_shot", 2, 0, 0, 2},
                             {Collective::all_reduce, "ring", 4, 0, 0, 0},
                             {Collective::all_gather, "direct", 8, 1, take, 1},
                             {Collective::all_gather, "direct", 9, 1, 0, 0},
                             {Collective::all_gather, "ring", 4, 0, 0, 0},
                             {Collective::reduce_scatter, "direct", 5, 0, combine, 1},
                             {Collective::all_to_all, "direct", 3, 1, take, 1},
                             {Collective::all_to_all_v, "direct", 3, 1, 0, 0},
                             {Collective::broadcast, "knomial4", 5, 1, take, 1},
                             {Collective::broadcast, "knomial4", 6, 0, 0, 0},
                             {Collective::broadcast, "two_shot", 4, 2, 0, 2},
                             {Collective::reduce, "knomial4", 4, 0, combine, 1},
                             {Collective::reduce, "two_shot", 4, 0, 0, 2},
                             {Collective::gather, "knomial4", 4, 1, take, 1},
                             {Collective::scatter, "knomial4", 3, 1, take, 1}}) {
    SCOPED_TRACE(testing::Message()
                 << name(one.collective) << " " << one.algorithm << " of " << one.ranks);
    const algorithm::Entry& entry = **algorithm::find(one.collective, one.algorithm);
    const auto exchange = plan::exchange_of(plan_of(entry, one.ranks, 0, false));
    EXPECT_EQ(exchange ? carriage(*exchange, Protocol::simple) : 0, one.simple);
    EXPECT_EQ(exchange ? carriage(*exchange, Protocol::ll) : 0, one.ll);
    EXPECT_EQ(exchange ? carriage(*exchange, Protocol::ll128) : 0, one.ll128);
  }
}

// A plan has no other exchange for its name; some ranks may call in place and others not; and no
// root is another case.
TEST(Carried, NamesAndPlaceAndRootsMakeNoDifference) {
  int known = 0;
  for (const algorithm::Entry& entry : algorithm::entries())
    for (const int ranks : {2, 3, 4, 5, 8}) {
      const auto wanted = test::exchange_of(entry, ranks);
      for (const bool in_place : {false, true})
        for (int root = 0; root < (has_root(entry.collective) ? ranks : 1); ++root) {
          if (in_place && entry.collective == Collective::all_to_all_v) continue;
          plan::Plan plan = plan_of(entry, ranks, root, in_place);
          plan.header.name = "two_shot_all_reduce";
          const auto exchange = plan::exchange_of(plan);
          ASSERT_EQ(exchange.has_value(), wanted != nullptr)
              << entry.plan_name() << " of " << ranks << (in_place ? " in place" : "");
          if (!exchange) continue;
          const bool is_same = root != 0 || *exchange == *wanted;
          EXPECT_TRUE(is_same) << entry.plan_name() << " of " << ranks;
          for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128})
            EXPECT_EQ(carriage(*exchange, protocol), carriage(*wanted, protocol))
                << entry.plan_name() << " of " << ranks << " from root " << root;
          ++known;
        }
    }
  EXPECT_GT(known, 200);
}

// In place, what is stored directly waits for no read: in an all-to-all alone it would have to,
// among the plans that bulk copies carry. Out of place this is no question.
TEST(Carried, InPlaceAnAllToAllAloneOverwritesWhatIsNotYetRead) {
  int known = 0;
  for (const algorithm::Entry& entry : algorithm::entries())
    for (int ranks = 2; ranks <= 8; ++ranks) {
      const auto exchange = test::exchange_of(entry, ranks);
      if (!exchange || ll128_hops(*exchange) == 0) continue;
      for (const plan::RankExchange& rank : exchange->ranks)
        EXPECT_EQ(rank.overwrites_in_place, entry.collective == Collective::all_to_all)
            << entry.plan_name() << " of " << ranks;
      ++known;
    }
  EXPECT_GT(known, 50);
}

// One rank's part alone is another: all ranks know it. Sums by LL may begin with any rank.
TEST(Carried, AnotherOrderOfSumsOnOneRankIsAnotherPlan) {
  const algorithm::Entry& direct = **algorithm::find(Collective::reduce_scatter, "direct");
  plan::Plan plan = plan_of(direct, 3, 0, false);
  ASSERT_GT(ll128_hops(*plan::exchange_of(plan)), 0);
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
  const auto exchange = plan::exchange_of(plan);
  ASSERT_TRUE(exchange);
  EXPECT_EQ(ll128_hops(*exchange), 0);
  EXPECT_EQ(ll_kind(*exchange), device::LlKind::combine);
}

}  // namespace
}  // namespace unisono::engine::gpu
