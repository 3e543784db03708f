// What a rank does that cannot connect to where rank 0 is said to listen: it says so, and how long
// it tries depends on whether rank 0 may still be on its way.

#include "comm/join/reaching.h"

#include <gtest/gtest.h>

#include <string>

#include "base/str.h"
#include "comm/join/join.h"
#include "support/real_ranks.h"
#include "sys/simulated_world.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t half_an_hour_ns = 1800 * second_ns;

struct Told {
  Error error;
  std::int64_t ended_ns = -1;

  bool has(std::string_view text) const { return error.message.find(text) != std::string::npos; }
};

// Rank 1 of two, in the simulated world, where rank 0 begins at that time or never.
class Joiner {
 public:
  explicit Joiner(std::int64_t rank_0_begins_ns) {
    simulation_.add_process("host0");
    simulation_.add_process("host1");
    if (rank_0_begins_ns < half_an_hour_ns) simulation_.start(0, begin(rank_0_begins_ns));
  }

  Told join(bool is_listening) {
    simulation_.start(1, run(1, is_listening));
    simulation_.run(2 * half_an_hour_ns);
    return told_;
  }

 private:
  sys::Task<void> begin(std::int64_t at_ns) {
    sys::Wait wait(simulation_.world(0).scheduler(), at_ns);
    co_await wait;
    co_await run(0, false);
  }
  sys::Task<void> run(int rank, bool is_listening) {
    BootstrapOptions options{.rank = rank,
                             .world_size = 2,
                             .rendezvous = "tcp://host0:29500",
                             .secret = "a secret",
                             .timeout_ns = half_an_hour_ns,
                             .is_listening = is_listening};
    SelfDescription self;
    self.host = str("host", rank);
    Result<Joined> joined =
        co_await join_job(simulation_.world(rank), std::move(options), self, nullptr);
    if (rank == 0) co_return;
    told_.ended_ns = simulation_.now_ns();
    if (!joined.ok()) told_.error = joined.error();
  }

  sys::Simulation simulation_{sys::SimulationOptions{}};
  Told told_;
};

TEST(Reaching, ARankGivesUpAnAddressThatRankZeroCannotBeReachedAt) {
  const Told told = Joiner(half_an_hour_ns).join(true);
  EXPECT_EQ(told.error.kind, ErrorKind::environment);
  EXPECT_TRUE(
      told.has("rank 1 cannot reach rank 0, which said that it listens at "
               "tcp://host0:29500"))
      << told.error.message;
  EXPECT_TRUE(told.has("UNISONO_INTERFACE")) << told.error.message;
  EXPECT_GE(told.ended_ns, 60 * second_ns);
  EXPECT_LT(told.ended_ns, 75 * second_ns);
}

TEST(Reaching, ARankZeroThatMayStartLaterIsWaitedFor) {
  const Told told = Joiner(600 * second_ns).join(false);
  EXPECT_EQ(told.error.message, "");
  EXPECT_GE(told.ended_ns, 600 * second_ns);
}

TEST(Reaching, ShortTroubleIsNoReasonToGiveUp) {
  const Told told = Joiner(30 * second_ns).join(true);
  EXPECT_EQ(told.error.message, "");
  EXPECT_GE(told.ended_ns, 30 * second_ns);
}

TEST(Reaching, OnceConnectedARankHasOtherReasonsToFail) {
  Reaching reaching(1, "rank 0", "tcp://host0:29500", true);
  EXPECT_FALSE(reaching.failed("refused", 0));
  EXPECT_FALSE(reaching.failed("refused", 59 * second_ns));
  reaching.succeeded();
  EXPECT_FALSE(reaching.failed("refused", 90 * second_ns));
}

}  // namespace
}  // namespace unisono::comm
