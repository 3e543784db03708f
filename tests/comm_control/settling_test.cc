// What members of an exchange suspect, and still compare, ends no call: one that is in a call knows
// better who holds them all up.

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/deaths.h"
#include "support/quiet.h"
#include "support/sanitized.h"
#include "support/simulated_ranks.h"

namespace unisono::comm {
namespace {

constexpr int ranks = 8;
constexpr int caller = 0;
constexpr int lost = 1;
constexpr std::int64_t ms_ns = 1'000'000;
constexpr std::int64_t exchange_ns = 2'000 * ms_ns;

sys::Task<void> pause_until(sys::World& world, std::int64_t time_ns) {
  sys::Wait pause(world.scheduler(), time_ns);
  co_await pause;
}

// A call that waits for the lost rank, as the scheduler makes it: it looks now and then whether the
// group is over.
sys::Task<Status> wait_in_a_call(GroupExchange& group) {
  sys::World& world = group.node()->world();
  group.call_state().calls.store(1, std::memory_order_relaxed);
  group.call_state().waits.store(pack({.what = CallWait::What::receive, .peer = lost}),
                                 std::memory_order_relaxed);
  while (world.now_ns() < 10 * exchange_ns) {
    const std::optional<Error> told = co_await group.look();
    if (told) co_return Status(*told);
    co_await pause_until(world, world.now_ns() + 5 * ms_ns);
  }
  co_return environment_error("no member told the call what has happened");
}

// `early` comes to the exchange before the others, and so does its deadline.
void expect_that_all_blame_the_lost_rank(int early, std::uint64_t seed) {
  SimulatedRanks job(
      ranks, {.seed = seed}, [&](std::shared_ptr<ControlNode> node) -> sys::Task<Status> {
        sys::World& world = node->world();
        GroupExchange group(node, {node->job(), 0}, Members::all(ranks), node->rank());
        co_await pause_until(world, 100 * ms_ns);
        if (node->rank() == lost) co_await pause_until(world, sys::no_deadline_ns);
        if (node->rank() == caller) {
          Status ended = co_await wait_in_a_call(group);
          co_return std::move(ended);
        }
        if (node->rank() != early) co_await pause_until(world, 120 * ms_ns);
        Status met = co_await group.barrier(exchange_ns);
        co_return std::move(met);
      });
  kill_at(job.simulation, lost, 80 * ms_ns, sys::Death::host);
  ASSERT_TRUE(job.simulation.run(20 * exchange_ns));
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == lost) continue;
    const Status& outcome = job.outcomes[static_cast<std::size_t>(rank)];
    ASSERT_FALSE(outcome.ok()) << rank;
    EXPECT_EQ(outcome.error().peer, lost) << "rank " << rank << ", early " << early << ", seed "
                                          << seed << ": " << outcome.error().describe();
  }
}

TEST(SettlingFailure, ARankThatACallHoldsUpIsNotBlamed) {
  for (std::uint64_t seed = 1; seed <= (test::is_sanitized ? 2 : 10); ++seed)
    for (int early = 2; early < ranks; ++early) expect_that_all_blame_the_lost_rank(early, seed);
}

}  // namespace
}  // namespace unisono::comm
