// The ring algorithms do, step by step, what Tables V, VI, VII, IX and X of "Demystifying NCCL"
// say.
#include <gtest/gtest.h>

#include <numeric>

#include "algorithm/algorithms.h"
#include "algorithm/measure.h"
#include "algorithm/parts/ring.h"
#include "algorithm/placements.h"
#include "plan/walk.h"

namespace unisono::algorithm {
namespace {

using Operations = std::vector<plan::Operation>;
using enum plan::Operation;

Operations repeated(int times, plan::Operation operation) {
  return Operations(static_cast<std::size_t>(std::max(times, 0)), operation);
}

Operations joined(std::initializer_list<Operations> parts) {
  Operations all;
  for (const Operations& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Every thread block of every rank, for several placements and numbers of channels.
template <class Expected>
void expect_operations(const Entry& entry, bool in_place, int root, Expected expected) {
  for (int ranks : {2, 3, 4, 7, 12})
    for (const NamedPlacement& where : placements_of(ranks))
      for (int channels : {1, 3}) {
        const Request request{.collective = entry.collective,
                              .placement = where.placement,
                              .root = std::min(root, ranks - 1),
                              .in_place = in_place,
                              .channels = channels};
        Result<plan::Plan> plan = make_plan(entry, request);
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        for (const plan::RankProgram& program : plan->programs) {
          ASSERT_EQ(program.thread_blocks.size(), static_cast<std::size_t>(channels));
          for (const plan::ThreadBlock& block : program.thread_blocks) {
            const Ring ring(where.placement, block.channel);
            const int behind_root =
                (ring.position_of(program.rank) - ring.position_of(request.root) + ranks) % ranks;
            EXPECT_EQ(operations_of(block), expected(ranks, behind_root))
                << where.name << ", rank " << program.rank;
          }
        }
      }
}

TEST(Ring, AllReduceTakesTheStepsOfTableV) {
  for (bool in_place : {false, true})
    expect_operations(ring_all_reduce, in_place, 0, [](int k, int) {
      return joined({{send},
                     repeated(k - 2, recv_reduce_send),
                     {recv_reduce_copy_send},
                     repeated(k - 2, recv_copy_send),
                     {recv}});
    });
}

TEST(Ring, AllGatherTakesTheStepsOfTableVI) {
  for (bool in_place : {false, true})
    expect_operations(ring_all_gather, in_place, 0, [=](int k, int) {
      return joined({{in_place ? send : copy_send}, repeated(k - 2, recv_copy_send), {recv}});
    });
}

TEST(Ring, ReduceScatterTakesTheStepsOfTableVII) {
  for (bool in_place : {false, true})
    expect_operations(ring_reduce_scatter, in_place, 0, [](int k, int) {
      return joined({{send}, repeated(k - 2, recv_reduce_send), {recv_reduce_copy}});
    });
}

TEST(Ring, BroadcastTakesTheStepsOfTableIX) {
  for (bool in_place : {false, true})
    for (int root : {0, 1, 5})
      expect_operations(ring_broadcast, in_place, root, [=](int k, int behind_root) {
        if (behind_root == 0) return Operations{in_place ? send : copy_send};
        return Operations{behind_root == k - 1 ? recv : recv_copy_send};
      });
}

TEST(Ring, ReduceTakesTheStepsOfTableX) {
  for (bool in_place : {false, true})
    for (int root : {0, 1, 5})
      expect_operations(ring_reduce, in_place, root, [](int, int behind_root) {
        if (behind_root == 0) return Operations{recv_reduce_copy};
        return Operations{behind_root == 1 ? send : recv_reduce_send};
      });
}

TEST(Ring, EntersAndLeavesEachNodeOnce) {
  for (int ranks : {2, 5, 9, 16})
    for (const NamedPlacement& where : placements_of(ranks))
      for (int channel : {0, 1, 4})
        for (bool backward : {false, true}) {
          const Ring ring(where.placement, channel, backward);
          int crossings = 0;
          for (int i = 0; i < ranks; ++i) crossings += ring.crosses_after(i) ? 1 : 0;
          const int nodes = where.placement.nodes();
          EXPECT_EQ(crossings, nodes == 1 ? 0 : nodes) << where.name;
        }
}

TEST(Ring, ChannelsLeaveANodeThroughDifferentRanks) {
  const topo::Placement placement = topo::Placement::uniform(3, 4);
  std::vector<int> leaving;
  for (int channel = 0; channel < 4; ++channel) {
    const Ring ring(placement, channel);
    for (int i = 0; i < 4; ++i)
      if (ring.crosses_after(i)) leaving.push_back(ring.rank_at(i));
  }
  std::sort(leaving.begin(), leaving.end());
  EXPECT_EQ(leaving, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Ring, ProgramsOfNumberedNodesStayShort) {
  for (bool round_robin : {false, true})
    for (const Entry* entry :
         {&ring_all_reduce, &ring_all_gather, &ring_reduce_scatter, &bidirectional_ring_all_gather})
      for (int channel : {0, 3}) {
        std::vector<int> node_of(2048);
        for (int rank = 0; rank < 2048; ++rank)
          node_of[static_cast<std::size_t>(rank)] = round_robin ? rank % 256 : rank / 8;
        const Request request{.collective = entry->collective,
                              .placement = topo::Placement::from_nodes(node_of).value(),
                              .channels = channel + 1};
        for (int rank : {0, 1, 1023, 2047}) {
          Result<plan::RankProgram> program = make_program(*entry, request, rank);
          ASSERT_TRUE(program.ok()) << program.error().message;
          const plan::ThreadBlock& block =
              program->thread_blocks[static_cast<std::size_t>(channel)];
          EXPECT_LT(block.body.size(), 10U) << entry->plan_name() << ", rank " << rank;
          EXPECT_GE(plan::unrolled_steps(block.body), 2048);
        }
      }
}

}  // namespace
}  // namespace unisono::algorithm
