// Ranks that connect to each other at once, and leave the job when each has done its part: nothing
// may be lost with the connections.

#include <gtest/gtest.h>

#include "support/quiet.h"
#include "support/sanitized.h"
#include "support/simulated_ranks.h"

namespace unisono::comm {
namespace {

constexpr std::uint64_t seeds = test::is_sanitized ? 60 : 300;

// Those but rank 0 had only rank 0 to speak with before.
sys::Task<Status> meet_and_leave(std::shared_ptr<ControlNode> node) {
  if (node->rank() == 0) co_return Status();
  std::vector<int> members;
  for (int rank = 1; rank < node->world_size(); ++rank) members.push_back(rank);
  GroupExchange group(node, {4711, 0}, Members::of(members), node->rank() - 1);
  Status met = co_await group.barrier(SimulatedRanks::timeout_ns);
  group.leave();
  co_return std::move(met);
}

TEST(CrossingConnections, ARankThatHasDoneItsPartMayLeave) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const int size = 3 + static_cast<int>(seed % 6);
    SimulatedRanks ranks(size, {.seed = seed, .max_delay_ns = 300'000}, meet_and_leave);
    ASSERT_TRUE(ranks.simulation.run(6 * SimulatedRanks::timeout_ns)) << seed;
    for (const Status& outcome : ranks.outcomes)
      ASSERT_TRUE(outcome.ok()) << "seed " << seed << ": " << outcome.error().describe();
  }
}

}  // namespace
}  // namespace unisono::comm
