// The double binary tree is balanced, and tree all-reduce does what Table VIII says.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "algorithm/algorithms.h"
#include "algorithm/measure.h"
#include "algorithm/parts/double_tree.h"
#include "algorithm/placements.h"

namespace unisono::algorithm {
namespace {

using Operations = std::vector<plan::Operation>;
using enum plan::Operation;

TEST(DoubleTree, ParentsAndChildrenAgreeAndReachTheRoot) {
  for (int nodes = 1; nodes <= 70; ++nodes)
    for (int tree : {0, 1}) {
      int roots = 0;
      for (int node = 0; node < nodes; ++node) {
        const TreePlace place = place_in_double_tree(tree, nodes, node);
        roots += place.parent < 0 ? 1 : 0;
        EXPECT_LE(place.children.size(), 2U);
        for (int child : place.children)
          EXPECT_EQ(place_in_double_tree(tree, nodes, child).parent, node);
        if (place.parent < 0) continue;
        const TreePlace parent = place_in_double_tree(tree, nodes, place.parent);
        EXPECT_EQ(std::count(parent.children.begin(), parent.children.end(), node), 1);
        EXPECT_LE(depth_in_double_tree(tree, nodes, node),
                  static_cast<int>(std::bit_width(static_cast<unsigned>(nodes))));
      }
      EXPECT_EQ(roots, 1) << nodes << " nodes, tree " << tree;
    }
}

TEST(DoubleTree, NodesAreLeavesInExactlyOneTreeButForNodeZeroOfOddOnes) {
  for (int nodes = 2; nodes <= 70; ++nodes)
    for (int node = 0; node < nodes; ++node) {
      int leaf_in = 0;
      for (int tree : {0, 1})
        leaf_in += place_in_double_tree(tree, nodes, node).children.empty() ? 1 : 0;
      EXPECT_EQ(leaf_in, nodes % 2 == 1 && node == 0 ? 0 : 1) << node << " of " << nodes;
    }
}

TEST(DoubleTree, SecondTreeIsMirroredForEvenAndShiftedForOddNumbers) {
  EXPECT_EQ(place_in_double_tree(0, 8, 0).children, (std::vector<int>{4}));
  EXPECT_EQ(place_in_double_tree(0, 8, 4).children, (std::vector<int>{2, 6}));
  EXPECT_EQ(place_in_double_tree(1, 8, 7).parent, -1);
  EXPECT_EQ(place_in_double_tree(1, 8, 3).children, (std::vector<int>{5, 1}));
  EXPECT_EQ(place_in_double_tree(1, 7, 1).parent, -1);
  EXPECT_EQ(place_in_double_tree(1, 7, 5).children, (std::vector<int>{3, 0}));
}

// The sequence of Table VIII, where the number of children is one or none.
TEST(Tree, RanksWithOneChildTakeTheStepsOfTableVIII) {
  for (bool in_place : {false, true})
    for (int ranks : {2, 3, 5, 8}) {
      // One node: a chain, in which every rank has at most one child.
      const Request request{.collective = Collective::all_reduce,
                            .placement = topo::Placement::single_node(ranks),
                            .in_place = in_place};
      Result<plan::Plan> plan = make_plan(tree_all_reduce, request);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      for (const plan::RankProgram& program : plan->programs) {
        std::vector<Operations> by_channel(2);
        for (const plan::ThreadBlock& block : program.thread_blocks)
          for (plan::Operation operation : operations_of(block))
            by_channel[static_cast<std::size_t>(block.channel)].push_back(operation);
        for (int channel : {0, 1}) {
          const int position = (program.rank - channel + ranks) % ranks;
          Operations expected{recv_reduce_send, recv_copy_send};
          if (position == 0) expected = {recv_reduce_copy_send};
          if (position == ranks - 1) expected = {send, recv};
          EXPECT_EQ(by_channel[static_cast<std::size_t>(channel)], expected)
              << "rank " << program.rank << " of " << ranks;
        }
      }
    }
}

TEST(Tree, OtherChildrenAreTakenWithRecvReduceCopy) {
  // Node 4 of 8 nodes with 2 ranks each: a chain child and the nodes 2 and 6.
  const Request request{.collective = Collective::all_reduce,
                        .placement = topo::Placement::uniform(8, 2)};
  Result<plan::RankProgram> program = make_program(tree_all_reduce, request, 8);
  ASSERT_TRUE(program.ok()) << program.error().message;
  Operations operations;
  for (const plan::ThreadBlock& block : program->thread_blocks)
    if (block.channel == 0)
      for (plan::Operation operation : operations_of(block)) operations.push_back(operation);
  EXPECT_EQ(operations, (Operations{recv_reduce_copy, recv_reduce_copy, recv_reduce_send,
                                    recv_copy_send, send, send}));
}

TEST(Tree, GoingUpAndComingDownAreInDifferentThreadBlocks) {
  const Request request{.collective = Collective::all_reduce,
                        .placement = topo::Placement::uniform(4, 2)};
  Result<plan::Plan> plan = make_plan(tree_all_reduce, request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  for (const plan::RankProgram& program : plan->programs)
    for (const plan::ThreadBlock& block : program.thread_blocks)
      EXPECT_EQ(operations_of(block).size(), 1U) << "rank " << program.rank;
}

}  // namespace
}  // namespace unisono::algorithm
