// Rings of any length are a few loops, and these are the ring.
#include "algorithm/parts/ring_walk.h"

#include <gtest/gtest.h>

#include "algorithm/algorithm.h"
#include "plan/walk.h"

namespace unisono::algorithm {
namespace {

struct Walk {
  std::vector<std::int64_t> chunks;
  std::size_t memory_bytes = 0;
};

Walk walk(const Ring& ring, std::int64_t first, std::int64_t count, const WalkStep& what) {
  plan::ProgramBuilder builder(0);
  plan::BlockBuilder block = builder.block(0, 1, 2);
  write_walk(block, ring, first, count, what);
  const plan::RankProgram program = builder.take();
  const plan::Body& body = program.thread_blocks[0].body;
  Walk result{{}, plan::memory_bytes(body)};
  for (plan::StepCursor cursor(body); cursor.step() != nullptr; cursor.advance()) {
    const plan::Step& step = *cursor.step();
    const bool writes = what.operation == plan::Operation::recv_copy_send;
    result.chunks.push_back((writes ? step.destination : step.source).index.at(cursor.loops()));
  }
  return result;
}

std::vector<topo::Placement> placements() {
  std::vector<topo::Placement> result;
  for (const auto& [nodes, ranks] : {std::pair(1, 2), std::pair(1, 7), std::pair(6, 1),
                                     std::pair(2, 3), std::pair(5, 4), std::pair(9, 8)})
    result.push_back(topo::Placement::uniform(nodes, ranks));
  result.push_back(*topo::Placement::blocks(std::vector{3, 1, 4}));
  result.push_back(*topo::Placement::from_nodes(std::vector{0, 1, 0, 1, 1, 0}));
  return result;
}

TEST(RingWalk, TakesTheRanksInTheRingsOrder) {
  for (const topo::Placement& placement : placements()) {
    for (const bool backward : {false, true}) {
      for (int channel = 0; channel < 6; ++channel) {
        const Ring ring(placement, channel, backward);
        for (int first = -2; first < ring.size() + 2; ++first) {
          for (const int count : {0, 1, 2, ring.size() / 2, ring.size() - 1, ring.size()}) {
            for (const auto operation :
                 {plan::Operation::recv_copy_send, plan::Operation::recv_reduce_send}) {
              const WalkStep what{operation, plan::Buffer::output, channel, 6};
              std::vector<std::int64_t> expected;
              for (int i = 0; i < count; ++i)
                expected.push_back(std::int64_t{ring.rank_at(first - i)} * 6 + channel);
              ASSERT_EQ(walk(ring, first, count, what).chunks, expected)
                  << placement.nodes() << " nodes, " << placement.ranks() << " ranks, channel "
                  << channel << (backward ? " backward" : "") << ", from " << first;
            }
          }
        }
      }
    }
  }
}

TEST(RingWalk, IsAsSmallForAHundredThousandRanks) {
  for (const int per_node : {1, 8}) {
    const topo::Placement few = topo::Placement::uniform(40, per_node);
    const topo::Placement many = topo::Placement::uniform(100'000 / per_node, per_node);
    for (const int channel : {0, 3}) {
      const WalkStep what{.channel = channel, .channels = 4};
      const Ring small(few, channel);
      const Ring large(many, channel);
      const std::size_t bytes = walk(large, 12'344, large.size() - 2, what).memory_bytes;
      EXPECT_LE(bytes, walk(small, 12'344, small.size() - 2, what).memory_bytes + 1000);
    }
  }
}

}  // namespace
}  // namespace unisono::algorithm
