// The bootstrap in the simulated world: the code that runs on real sockets, with seeded delays,
// losses and deaths.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "base/str.h"
#include "comm/control/group.h"
#include "comm/join/join.h"
#include "support/deaths.h"
#include "support/quiet.h"
#include "support/real_ranks.h"
#include "support/sanitized.h"
#include "sys/simulated_world.h"

namespace unisono::comm {
namespace {

using sys::Death;
using sys::Simulation;
using sys::SimulationOptions;

constexpr std::int64_t timeout_ns = 20 * second_ns;
// Past every timeout and every grace of the protocol.
constexpr std::int64_t hang_ns = 120 * second_ns;

// How many of the cases to try that a test would try at full speed.
constexpr int share_of(int cases) { return test::is_sanitized ? cases / 5 : cases; }
constexpr std::uint64_t seeds(int cases) { return static_cast<std::uint64_t>(share_of(cases)); }
// For seeds that say when somebody dies: fewer, over the same time.
constexpr std::uint64_t stride = test::is_sanitized ? 4 : 1;

struct Outcome {
  bool has_ended = false;
  bool succeeded = false;
  bool is_right = false;  // every contribution is what its rank gave
  Key key{};
  Error error;
  std::int64_t ended_ns = 0;
};

struct Job {
  Job(int ranks, SimulationOptions options) : simulation(options), outcomes(ranks) {
    for (int rank = 0; rank < ranks; ++rank) simulation.add_process(str("host", rank));
  }

  BootstrapOptions options_of(int rank) const {
    BootstrapOptions options;
    options.rank = rank;
    options.world_size = static_cast<int>(outcomes.size());
    options.rendezvous = "tcp://host0:29500";
    options.secret = "a secret";
    options.timeout_ns = timeout_ns;
    return options;
  }

  sys::Task<void> rank_main(int rank, BootstrapOptions options) {
    sys::World& world = simulation.world(rank);
    SelfDescription self;
    self.host = world.own_host();
    Result<Joined> joined = co_await join_job(world, std::move(options), self, nullptr);
    Outcome& out = outcomes[static_cast<std::size_t>(rank)];
    out.has_ended = true;
    out.succeeded = joined.ok();
    out.ended_ns = world.now_ns();
    if (!joined.ok()) {
      out.error = joined.error();
      co_return;
    }
    const Roster& roster = joined->roster;
    out.is_right = roster.ranks() == static_cast<int>(outcomes.size()) &&
                   roster.hosts() == roster.ranks() && roster.node_of(rank) == rank;
    out.key = joined->node->job_key();
    if (!after_join) co_return;
    GroupExchange group(joined->node, {joined->node->job(), 0}, Members::all(roster.ranks()), rank);
    co_await after_join(group, out);
  }

  void start(int rank) { simulation.start(rank, rank_main(rank, options_of(rank))); }
  void start_all() {
    for (int rank = 0; rank < static_cast<int>(outcomes.size()); ++rank) start(rank);
  }

  Simulation simulation;
  std::vector<Outcome> outcomes;
  std::function<sys::Task<void>(GroupExchange&, Outcome&)> after_join;
};

TEST(SimulatedBootstrap, AThousandRanksFindEachOther) {
  Job job(share_of(1000), {.seed = 7});
  job.start_all();
  ASSERT_TRUE(job.simulation.run(hang_ns));
  for (const Outcome& outcome : job.outcomes) {
    ASSERT_TRUE(outcome.succeeded) << outcome.error.describe();
    ASSERT_TRUE(outcome.is_right);
    ASSERT_EQ(outcome.key, job.outcomes[0].key);
  }
  EXPECT_NE(job.outcomes[0].key, Key{});
  EXPECT_TRUE(job.simulation.is_quiet());
}

TEST(SimulatedBootstrap, RanksThatProtectFramesDifferentlyAllNameTheSetting) {
  Job job(4, {.seed = 5});
  for (int rank = 0; rank < 4; ++rank) {
    BootstrapOptions options = job.options_of(rank);
    if (rank == 2) options.protection = sys::Protection::encrypt;
    job.simulation.start(rank, job.rank_main(rank, options));
  }
  ASSERT_TRUE(job.simulation.run(hang_ns));
  for (const Outcome& outcome : job.outcomes) {
    EXPECT_FALSE(outcome.succeeded);
    EXPECT_NE(outcome.error.message.find("UNISONO_WIRE"), std::string::npos)
        << outcome.error.message;
    EXPECT_LT(outcome.ended_ns, 3 * second_ns);  // rank 0 tells those who come late for a while
  }
}

TEST(SimulatedBootstrap, WorksWithEveryProtection) {
  for (const auto protection :
       {sys::Protection::none, sys::Protection::authenticate, sys::Protection::encrypt}) {
    Job job(6, {.seed = 9});
    for (int rank = 0; rank < 6; ++rank) {
      BootstrapOptions options = job.options_of(rank);
      options.protection = protection;
      job.simulation.start(rank, job.rank_main(rank, options));
    }
    ASSERT_TRUE(job.simulation.run(hang_ns));
    for (const Outcome& outcome : job.outcomes)
      EXPECT_TRUE(outcome.is_right) << outcome.error.describe();
  }
}

// One process too many comes when all have found each other.
TEST(SimulatedBootstrap, WhoComesTooLateIsToldSo) {
  Job job(3, {.seed = 5});
  job.simulation.add_process("host3");
  Outcome late;
  job.outcomes.reserve(4);
  for (int rank = 0; rank < 3; ++rank) job.start(rank);
  job.after_join = [&](GroupExchange& group, Outcome&) -> sys::Task<void> {
    sys::World& world = group.node()->world();
    sys::Wait pause(world.scheduler(), world.now_ns() + 30 * second_ns);
    co_await pause;
  };
  const auto come = [&]() -> sys::Task<void> {
    sys::World& world = job.simulation.world(3);
    sys::Wait pause(world.scheduler(), world.now_ns() + second_ns);
    co_await pause;
    const SelfDescription self;
    Result<Joined> joined = co_await join_job(world, job.options_of(1), self, nullptr);
    late.has_ended = !joined.ok();
    if (!joined.ok()) late.error = joined.error();
    late.ended_ns = world.now_ns();
  };
  job.simulation.start(3, come());
  ASSERT_TRUE(job.simulation.run(hang_ns));
  for (const Outcome& outcome : job.outcomes) EXPECT_TRUE(outcome.is_right);
  EXPECT_TRUE(late.has_ended);
  EXPECT_LT(late.ended_ns, 2 * second_ns);
  EXPECT_NE(late.error.message.find("the job had started"), std::string::npos)
      << late.error.message;
}

std::uint64_t trace_of(std::uint64_t seed) {
  Job job(20, {.seed = seed, .refuse_probability = 0.1, .break_probability = 0.002});
  kill_at(job.simulation, static_cast<int>(seed % 20), 2'000'000, Death::process);
  job.start_all();
  EXPECT_TRUE(job.simulation.run(hang_ns));
  return job.simulation.trace_hash();
}

TEST(SimulatedBootstrap, ASeedReplaysTheRunEventForEvent) {
  std::set<std::uint64_t> different;
  for (std::uint64_t seed = 100; seed < 100 + seeds(10); ++seed) {
    const std::uint64_t first = trace_of(seed);
    EXPECT_EQ(first, trace_of(seed)) << "seed " << seed;
    different.insert(first);
  }
  EXPECT_EQ(different.size(), seeds(10));
}

TEST(SimulatedBootstrap, RefusedConnectionsAreTriedAgain) {
  for (std::uint64_t seed = 0; seed < seeds(20); ++seed) {
    Job job(13, {.seed = seed, .refuse_probability = 0.15});
    job.start_all();
    ASSERT_TRUE(job.simulation.run(hang_ns));
    for (const Outcome& outcome : job.outcomes)
      EXPECT_TRUE(outcome.is_right) << "seed " << seed << ": " << outcome.error.describe();
  }
}

TEST(SimulatedBootstrap, MissingRanksAreNamedToAllWhoWait) {
  Job job(16, {.seed = 3});
  for (int rank = 0; rank < 16; ++rank)
    if (rank != 4 && rank != 5 && rank != 6 && rank != 11) job.start(rank);
  ASSERT_TRUE(job.simulation.run(hang_ns));
  for (int rank = 0; rank < 16; ++rank) {
    const Outcome& outcome = job.outcomes[static_cast<std::size_t>(rank)];
    if (rank == 4 || rank == 5 || rank == 6 || rank == 11) continue;
    EXPECT_TRUE(outcome.has_ended);
    EXPECT_TRUE(outcome.error.timed_out);
    EXPECT_EQ(outcome.error.peer, 4);
    EXPECT_NE(outcome.error.message.find("missing: 4-6, 11"), std::string::npos)
        << outcome.error.message;
    EXPECT_GE(outcome.ended_ns, timeout_ns);
    EXPECT_LE(outcome.ended_ns, timeout_ns + 5 * second_ns);
  }
}

TEST(SimulatedBootstrap, AnotherSecretIsRefusedAtOnce) {
  Job job(2, {.seed = 3});
  BootstrapOptions options = job.options_of(1);
  options.secret = "another secret";
  job.start(0);
  job.simulation.start(1, job.rank_main(1, options));
  ASSERT_TRUE(job.simulation.run(hang_ns));
  EXPECT_EQ(job.outcomes[1].error.kind, ErrorKind::environment);
  EXPECT_LT(job.outcomes[1].ended_ns, timeout_ns / 2) << job.outcomes[1].error.describe();
}

// Rank 2 never comes, and rank 1 goes: after it has enrolled it is named at once.
TEST(SimulatedBootstrap, WhoGoesBeforeAllHaveComeIsNamed) {
  int at_once = 0;
  for (int tenths_ms = 1; tenths_ms < 100; ++tenths_ms) {
    Job job(3, {.seed = 3});
    for (const int rank : {0, 1}) job.start(rank);
    kill_at(job.simulation, 1, tenths_ms * std::int64_t{100'000}, sys::Death::process);
    ASSERT_TRUE(job.simulation.run(hang_ns));
    const Outcome& outcome = job.outcomes[0];
    EXPECT_EQ(outcome.error.peer, 1) << tenths_ms << ": " << outcome.error.describe();
    const bool was_never_there = outcome.error.message.find("missing: 1, 2") != std::string::npos ||
                                 outcome.error.message.find("missing: 1-2") != std::string::npos;
    EXPECT_TRUE(was_never_there || outcome.ended_ns < timeout_ns / 2)
        << tenths_ms << ": " << outcome.error.describe();
    at_once += outcome.ended_ns < timeout_ns / 2;
  }
  EXPECT_GT(at_once, 50);
}

TEST(SimulatedBootstrap, WithoutRankZeroEveryRankNamesIt) {
  Job job(5, {.seed = 3});
  for (int rank = 1; rank < 5; ++rank) job.start(rank);
  ASSERT_TRUE(job.simulation.run(hang_ns));
  for (int rank = 1; rank < 5; ++rank) {
    const Outcome& outcome = job.outcomes[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(outcome.error.timed_out);
    EXPECT_EQ(outcome.error.peer, 0);
    EXPECT_NE(outcome.error.message.find("rendezvous"), std::string::npos);
  }
}

// A death at any time: nobody hangs, and either the living all succeed (the rank died after it had
// done its part) or they all name the dead rank, or, when it had not enrolled, the missing one.
TEST(SimulatedBootstrap, ADeathEndsEveryRankTheSameWay) {
  int jobs = 0;
  int failed_jobs = 0;
  for (std::uint64_t seed = 0; seed < 150; seed += stride) {
    ++jobs;
    const int p = 2 + static_cast<int>(seed % 15);
    const int victim = 1 + static_cast<int>((seed * 7) % static_cast<std::uint64_t>(p - 1));
    Job job(p, {.seed = seed});
    kill_at(job.simulation, victim, static_cast<std::int64_t>(seed) * 100'000, Death::process);
    job.start_all();
    ASSERT_TRUE(job.simulation.run(hang_ns)) << "seed " << seed;
    int succeeded = 0;
    for (int rank = 0; rank < p; ++rank) {
      const Outcome& outcome = job.outcomes[static_cast<std::size_t>(rank)];
      if (rank == victim) continue;
      ASSERT_TRUE(outcome.has_ended) << "seed " << seed << " rank " << rank;
      succeeded += outcome.succeeded;
      if (outcome.succeeded) {
        EXPECT_TRUE(outcome.is_right);
        continue;
      }
      EXPECT_EQ(outcome.error.peer, victim)
          << "seed " << seed << " rank " << rank << ": " << outcome.error.describe();
    }
    EXPECT_TRUE(succeeded == 0 || succeeded == p - 1) << "seed " << seed << ": " << succeeded;
    failed_jobs += succeeded == 0;
    EXPECT_TRUE(job.simulation.is_quiet()) << "seed " << seed;
  }
  EXPECT_GT(failed_jobs, jobs / 5);
  EXPECT_LT(failed_jobs, jobs);
}

TEST(SimulatedBootstrap, TheDeathOfRankZeroIsNamedByEveryRankThatFails) {
  int failed = 0;
  for (std::uint64_t seed = 0; seed < 60; seed += stride) {
    const int p = 2 + static_cast<int>(seed % 9);
    Job job(p, {.seed = seed});
    kill_at(job.simulation, 0, static_cast<std::int64_t>(seed) * 200'000, Death::process);
    job.start_all();
    ASSERT_TRUE(job.simulation.run(hang_ns)) << "seed " << seed;
    for (int rank = 1; rank < p; ++rank) {
      const Outcome& outcome = job.outcomes[static_cast<std::size_t>(rank)];
      ASSERT_TRUE(outcome.has_ended);
      if (outcome.succeeded) continue;
      ++failed;
      EXPECT_EQ(outcome.error.peer, 0) << "seed " << seed << ": " << outcome.error.describe();
    }
  }
  EXPECT_GT(failed, share_of(50));
}

// A host that falls silent says nothing, so only the deadline finds out; nobody hangs.
TEST(SimulatedBootstrap, ASilentHostEndsTheJobAtTheDeadline) {
  for (std::uint64_t seed = 0; seed < 40; seed += stride) {
    const int p = 3 + static_cast<int>(seed % 7);
    Job job(p, {.seed = seed});
    kill_at(job.simulation, 1 + static_cast<int>(seed) % (p - 1), 3'000'000, Death::host);
    job.start_all();
    ASSERT_TRUE(job.simulation.run(hang_ns)) << "seed " << seed;
    std::set<int> named;
    for (int rank = 0; rank < p; ++rank) {
      const Outcome& outcome = job.outcomes[static_cast<std::size_t>(rank)];
      if (!job.simulation.is_alive(rank)) continue;
      ASSERT_TRUE(outcome.has_ended);
      EXPECT_LE(outcome.ended_ns, timeout_ns + 5 * second_ns);
      if (!outcome.succeeded) named.insert(outcome.error.peer);
    }
    EXPECT_LE(named.size(), 1u) << "seed " << seed;
  }
}

// Everything at once: refused and broken connections, sometimes a death. Every run ends, and a run
// in which a rank fails fails everywhere with one culprit.
TEST(SimulatedBootstrap, RandomFaultsEndInSuccessOrInErrorsThatNameACulprit) {
  int succeeded_jobs = 0;
  for (std::uint64_t seed = 1000; seed < 1000 + seeds(300); ++seed) {
    const int p = 2 + static_cast<int>(seed % 23);
    Job job(p, {.seed = seed,
                .refuse_probability = 0.05,
                .break_probability = seed % 3 == 0 ? 0.0 : 0.003});
    if (seed % 4 == 0)
      kill_at(job.simulation, static_cast<int>(seed / 4) % p,
              static_cast<std::int64_t>(seed % 100) * 100'000, Death::process);
    job.start_all();
    ASSERT_TRUE(job.simulation.run(hang_ns)) << "seed " << seed;
    int living = 0;
    int succeeded = 0;
    for (int rank = 0; rank < p; ++rank) {
      const Outcome& outcome = job.outcomes[static_cast<std::size_t>(rank)];
      if (!job.simulation.is_alive(rank) && !outcome.has_ended) continue;
      ++living;
      ASSERT_TRUE(outcome.has_ended) << "seed " << seed << " rank " << rank;
      succeeded += outcome.succeeded;
      if (outcome.succeeded) continue;
      EXPECT_GE(outcome.error.peer, 0)
          << "seed " << seed << " rank " << rank << ": " << outcome.error.describe();
    }
    succeeded_jobs += succeeded == living;
    EXPECT_TRUE(job.simulation.is_quiet()) << "seed " << seed;
  }
  EXPECT_GT(succeeded_jobs, share_of(60));
  EXPECT_LT(succeeded_jobs, share_of(290));
}

// After the bootstrap, in the group of all ranks.

sys::Task<void> exchange_ten_times(GroupExchange& group, Outcome& out) {
  for (int round = 0; round < 10; ++round) {
    const std::vector<std::byte> mine = contribution_of(group.rank() + round);
    Result<Gathered> gathered = co_await group.all_gather(mine, timeout_ns);
    out.succeeded = gathered.ok();
    if (!gathered.ok()) {
      out.error = gathered.error();
      co_return;
    }
    for (int member = 0; member < gathered->size(); ++member)
      out.is_right = out.is_right && is_contribution_of(member + round, (*gathered)[member]);
  }
  // Nobody may leave while others still wait: a leaving process looks like a dying one.
  Status status = co_await group.barrier(timeout_ns);
  out.succeeded = status.ok();
  if (!status.ok()) out.error = status.error();
}

TEST(SimulatedGroup, ExchangesFollowOneAnotherOnManyRanks) {
  for (const int p : {2, 7, test::is_sanitized ? 19 : 64}) {
    Job job(p, {.seed = 11});
    job.after_join = exchange_ten_times;
    job.start_all();
    ASSERT_TRUE(job.simulation.run(hang_ns));
    for (const Outcome& outcome : job.outcomes)
      EXPECT_TRUE(outcome.is_right) << outcome.error.describe();
  }
}

TEST(SimulatedGroup, ADeathBetweenExchangesIsNamedByEveryMember) {
  int failed_jobs = 0;
  for (std::uint64_t seed = 0; seed < 60; seed += stride) {
    const int p = 3 + static_cast<int>(seed % 11);
    const int victim = static_cast<int>(seed * 5 % static_cast<std::uint64_t>(p));
    Job job(p, {.seed = seed});
    job.after_join = exchange_ten_times;
    const std::int64_t death_ns = 15'000'000 + static_cast<std::int64_t>(seed) * 300'000;
    kill_at(job.simulation, victim, death_ns, Death::process);
    job.start_all();
    ASSERT_TRUE(job.simulation.run(hang_ns)) << "seed " << seed;
    for (int rank = 0; rank < p; ++rank) {
      const Outcome& outcome = job.outcomes[static_cast<std::size_t>(rank)];
      if (rank == victim || outcome.succeeded) continue;
      ++failed_jobs;
      EXPECT_EQ(outcome.error.peer, victim)
          << "seed " << seed << " rank " << rank << ": " << outcome.error.describe();
    }
  }
  EXPECT_GT(failed_jobs, share_of(100));
}

constexpr int late_member = 5;

sys::Task<void> stay_away_if_late(GroupExchange& group, Outcome& out) {
  if (group.rank() == late_member) {
    sys::World& world = group.node()->world();
    sys::Wait away(world.scheduler(), world.now_ns() + 3 * timeout_ns);
    co_await away;
    co_return;
  }
  Status status = co_await group.barrier(timeout_ns);
  out.succeeded = status.ok();
  if (!status.ok()) out.error = status.error();
}

TEST(SimulatedGroup, AMemberThatStaysAwayIsNamedByEveryMember) {
  for (std::uint64_t seed = 0; seed < seeds(20); ++seed) {
    const int p = 6 + static_cast<int>(seed);
    Job job(p, {.seed = seed});
    job.after_join = stay_away_if_late;
    job.start_all();
    ASSERT_TRUE(job.simulation.run(hang_ns)) << "seed " << seed;
    for (int rank = 0; rank < p; ++rank) {
      const Outcome& outcome = job.outcomes[static_cast<std::size_t>(rank)];
      if (rank == late_member) continue;
      EXPECT_FALSE(outcome.succeeded);
      EXPECT_TRUE(outcome.error.timed_out);
      EXPECT_EQ(outcome.error.peer, late_member)
          << "seed " << seed << " rank " << rank << ": " << outcome.error.describe();
    }
  }
}

sys::Task<void> exchange_in_overlapping_groups(GroupExchange& group, Outcome& out) {
  const int p = static_cast<int>(group.members().size());
  for (const int colors : {2, 3, 5}) {
    std::vector<int> members;
    for (int rank = group.rank() % colors; rank < p; rank += colors) members.push_back(rank);
    const std::uint64_t id = child_communicator(
        group.id().communicator, static_cast<std::uint64_t>(colors), group.rank() % colors);
    GroupExchange part(group.node(), GroupId{id, 0}, Members::of(members), group.rank() / colors);
    const std::vector<std::byte> mine = contribution_of(group.rank());
    Result<Gathered> gathered = co_await part.all_gather(mine, timeout_ns);
    out.succeeded = gathered.ok();
    if (!gathered.ok()) {
      out.error = gathered.error();
      co_return;
    }
    for (int member = 0; member < gathered->size(); ++member)
      out.is_right = out.is_right && is_contribution_of(members[static_cast<std::size_t>(member)],
                                                        (*gathered)[member]);
  }
  Status status = co_await group.barrier(timeout_ns);
  out.succeeded = status.ok();
  if (!status.ok()) out.error = status.error();
}

TEST(SimulatedGroup, OverlappingGroupsExchangeAtTheirOwnPace) {
  for (std::uint64_t seed = 0; seed < seeds(10); ++seed) {
    Job job(30, {.seed = seed, .refuse_probability = 0.05});
    job.after_join = exchange_in_overlapping_groups;
    job.start_all();
    ASSERT_TRUE(job.simulation.run(hang_ns));
    for (const Outcome& outcome : job.outcomes)
      EXPECT_TRUE(outcome.succeeded && outcome.is_right) << outcome.error.describe();
  }
}

}  // namespace
}  // namespace unisono::comm
