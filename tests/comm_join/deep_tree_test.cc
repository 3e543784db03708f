// Jobs whose tree is deep and whose addresses are looked up, as in large ones, in the simulated
// world.

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/str.h"
#include "comm/control/directory.h"
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

constexpr std::int64_t timeout_ns = 20 * second_ns;
constexpr std::int64_t hang_ns = 120 * second_ns;

struct Outcome {
  bool has_ended = false;
  bool is_joined = false;
  bool is_right = false;
  Error error;
  std::int64_t ended_ns = 0;
};

struct DeepJob {
  DeepJob(
      int ranks, int fan, std::uint64_t seed, bool is_by_file = false,
      std::function<int(int)> layout = [](int rank) { return rank; })
      : simulation({.seed = seed}),
        outcomes(static_cast<std::size_t>(ranks)),
        fan_out(fan),
        host_of(std::move(layout)) {
    rendezvous = is_by_file ? "file:///rendezvous" : "tcp://host0:29500";
    for (int rank = 0; rank < ranks; ++rank) simulation.add_process(str("host", host_of(rank)));
  }
  int ranks() const { return static_cast<int>(outcomes.size()); }

  sys::Task<void> run_rank(int rank, std::int64_t late_ns) {
    sys::World& world = simulation.world(rank);
    if (late_ns > 0) {
      sys::Wait late(world.scheduler(), late_ns);
      co_await late;
    }
    BootstrapOptions options;
    options.rank = rank;
    options.world_size = ranks();
    options.rendezvous = rendezvous;
    options.secret = "a secret";
    options.timeout_ns = timeout_ns;
    options.fan_out = fan_out;
    options.most_addresses = 0;
    SelfDescription self;
    self.host = world.own_host();
    Result<Joined> joined = co_await join_job(world, std::move(options), self, nullptr);
    Outcome& out = outcomes[static_cast<std::size_t>(rank)];
    Status status;
    if (joined.ok() && is_used)
      status = co_await use(*joined, rank, out);
    else if (!joined.ok())
      status = joined.take_error();
    out.is_joined = joined.ok();
    out.has_ended = true;
    out.ended_ns = world.now_ns();
    if (!status.ok()) out.error = status.error();
  }

  // Every rank looks up every other one, and exchanges with all.
  sys::Task<Status> use(Joined& joined, int rank, Outcome& out) {
    Directory& directory = joined.node->directory();
    directory.publish(contribution_of(rank % 50));
    GroupExchange group(joined.node, {joined.node->job(), 0}, Members::all(ranks()), rank);
    Status met = co_await group.agree(Status(), timeout_ns);
    if (!met.ok()) co_return std::move(met);
    out.is_right = joined.roster.ranks() == ranks() && joined.roster.node_of(rank) == host_of(rank);
    for (int other = 0; other < ranks(); ++other) {
      auto record = co_await directory.look_up(other, joined.node->world().now_ns() + timeout_ns);
      if (!record.ok()) co_return record.take_error();
      out.is_right = out.is_right && is_contribution_of(other % 50, *record);
      const std::string* address = joined.node->known_address(other);
      out.is_right = out.is_right &&
                     (other == rank ||
                      (address != nullptr && address->starts_with(str("host", host_of(other)))));
    }
    const std::vector<std::byte> mine = contribution_of(rank % 50);
    Result<Gathered> gathered = co_await group.all_gather(mine, timeout_ns);
    if (!gathered.ok()) co_return gathered.take_error();
    for (int other = 0; other < ranks(); ++other)
      out.is_right = out.is_right && is_contribution_of(other % 50, (*gathered)[other]);
    met = co_await group.barrier(timeout_ns);
    co_return std::move(met);
  }

  void start(int rank, std::int64_t late_ns = 0) {
    simulation.start(rank, run_rank(rank, late_ns));
  }
  void expect_success(const std::string& what) {
    ASSERT_TRUE(simulation.run(hang_ns)) << what;
    for (const Outcome& outcome : outcomes)
      EXPECT_TRUE(outcome.is_right && outcome.error.message.empty())
          << what << ": " << outcome.error.describe();
  }

  sys::Simulation simulation;
  std::vector<Outcome> outcomes;
  int fan_out;
  std::function<int(int)> host_of;
  bool is_used = true;  // not only joined
  std::string rendezvous;
};

TEST(DeepTree, EveryRankLooksEveryRankUp) {
  std::uint64_t seed = 1;
  for (const int fan : {1, 2, 3})
    for (const int ranks : {1, 2, 3, 7, 24}) {
      DeepJob job(ranks, fan, ++seed);
      for (int rank = 0; rank < ranks; ++rank) job.start(rank);
      job.expect_success(str(ranks, " ranks, fan-out ", fan));
    }
}

TEST(DeepTree, RanksBeginAtFilesOfTheirOwn) {
  DeepJob job(test::is_sanitized ? 60 : 150, 3, 5, true);
  for (int rank = 0; rank < job.ranks(); ++rank) job.start(rank);
  job.expect_success("files");
  for (const std::string path : {"/rendezvous", "/rendezvous.1"})
    EXPECT_FALSE(job.simulation.world(0).read_file(path, 1024, false).ok()) << path;
}

TEST(DeepTree, LateRanksAreWaitedFor) {
  for (const bool is_by_file : {false, true})
    for (std::uint64_t seed = 1; seed < (test::is_sanitized ? 2 : 5); ++seed) {
      DeepJob job(40, 2, seed, is_by_file);
      for (int rank = 0; rank < 40; ++rank)
        job.start(rank, (rank * static_cast<int>(seed)) % 7 == 3 ? 3 * second_ns : 0);
      job.expect_success(str("seed ", seed));
    }
}

TEST(DeepTree, MissingRanksAreNamedToAll) {
  DeepJob job(30, 2, 3);
  const std::set<int> missing{1, 20, 21};
  for (int rank = 0; rank < 30; ++rank)
    if (!missing.contains(rank)) job.start(rank);
  ASSERT_TRUE(job.simulation.run(hang_ns));
  for (int rank = 0; rank < 30; ++rank) {
    if (missing.contains(rank)) continue;
    const Outcome& outcome = job.outcomes[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(outcome.has_ended);
    EXPECT_LE(outcome.ended_ns, timeout_ns + 5 * second_ns);
    EXPECT_TRUE(outcome.error.timed_out) << rank << ": " << outcome.error.describe();
  }
  const Error& known = job.outcomes[0].error;
  EXPECT_EQ(known.peer, 1) << known.describe();
  EXPECT_NE(known.message.find("missing: 1, 20, 21"), std::string::npos) << known.message;
}

// An inner rank dies at any time while the others join: nobody hangs, and who fails names it.
TEST(DeepTree, TheDeathOfAnInnerRankIsNamedByWhoFails) {
  int failed = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    DeepJob job(30, 3, seed);
    const int victim = 1 + 10 * static_cast<int>(seed % 3);
    const std::int64_t death_ns = static_cast<std::int64_t>(seed) * 500'000;
    kill_at(job.simulation, victim, death_ns, Death::process);
    for (int rank = 0; rank < 30; ++rank) job.start(rank);
    ASSERT_TRUE(job.simulation.run(hang_ns)) << "seed " << seed;
    for (int rank = 0; rank < 30; ++rank) {
      const Outcome& outcome = job.outcomes[static_cast<std::size_t>(rank)];
      if (rank == victim || outcome.error.message.empty()) continue;
      ++failed;
      EXPECT_TRUE(outcome.has_ended);
    }
    const Error& known = job.outcomes[0].error;
    if (!known.message.empty()) {
      EXPECT_EQ(known.peer, victim) << known.describe();
    }
  }
  EXPECT_GT(failed, 100);
}

TEST(DeepTree, ARankThatJoinsTwiceEndsTheJobByName) {
  DeepJob job(20, 2, 4);
  job.simulation.add_process("another");
  for (int rank = 0; rank < 20; ++rank)
    if (rank != 13) job.start(rank, rank == 7 ? 2 * second_ns : 0);
  job.start(13);
  sys::World& world = job.simulation.world(20);
  Error told;
  const auto come = [&]() -> sys::Task<void> {
    BootstrapOptions options;
    options.rank = 13;
    options.world_size = 20;
    options.rendezvous = job.rendezvous;
    options.secret = "a secret";
    options.timeout_ns = timeout_ns;
    options.fan_out = 2;
    options.most_addresses = 0;
    const SelfDescription self;
    Result<Joined> joined = co_await join_job(world, options, self, nullptr);
    if (!joined.ok()) told = joined.error();
  };
  job.simulation.start(20, come());
  ASSERT_TRUE(job.simulation.run(hang_ns));
  EXPECT_NE(told.message.find("two processes joined as rank 13"), std::string::npos)
      << told.message;
  const Error& known = job.outcomes[0].error;
  EXPECT_EQ(known.peer, 13) << known.describe();
  EXPECT_EQ(known.kind, ErrorKind::misuse) << known.describe();
}

}  // namespace
}  // namespace unisono::comm
