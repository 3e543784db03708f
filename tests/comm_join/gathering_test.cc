// Ranks that gather on their hosts before they visit rank 0, as those of large jobs do, in the
// simulated world.

#include <gtest/gtest.h>

#include <functional>

#include "base/str.h"
#include "comm/join/host_rendezvous.h"
#include "comm/join/join.h"
#include "support/deaths.h"
#include "support/quiet.h"
#include "support/real_ranks.h"
#include "sys/simulated_world.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t timeout_ns = 20 * second_ns;
constexpr std::int64_t hang_ns = 120 * second_ns;
const std::string rendezvous = "tcp://host0:29500";

// Where a rank is, of so many hosts.
int block(int rank, int ranks, int hosts) { return rank * hosts / ranks; }
int cyclic(int rank, int, int hosts) { return rank % hosts; }
using Layout = int (*)(int rank, int ranks, int hosts);

struct GatheredJob {
  GatheredJob(int ranks, int hosts, int fan, std::uint64_t seed, Layout layout = block)
      : simulation({.seed = seed}), errors(static_cast<std::size_t>(ranks)), fan_out(fan) {
    for (int rank = 0; rank < ranks; ++rank)
      simulation.add_process(str("host", layout(rank, ranks, hosts)));
    simulation.watch([this](int process, std::string_view place) {
      if (process == 0 && place == "control.admit") ++admitted_by_rank_0;
    });
  }
  int ranks() const { return static_cast<int>(errors.size()); }

  sys::Task<void> run_rank(int process, int rank, int world_size) {
    sys::World& world = simulation.world(process);
    BootstrapOptions options;
    options.rank = rank;
    options.world_size = world_size;
    options.rendezvous = rendezvous;
    options.secret = "a secret";
    options.timeout_ns = timeout_ns;
    options.fan_out = fan_out;
    options.most_addresses = 0;
    SelfDescription self;
    self.host = world.own_host();
    Result<Joined> joined = co_await join_job(world, std::move(options), self, nullptr);
    std::optional<Error>& error = errors[static_cast<std::size_t>(process)];
    if (!joined.ok()) error = joined.error();
    joined_ranks += joined.ok();
    ended_ns = world.now_ns();
    // All stay until the last one has joined.
    while (joined.ok() && joined_ranks < ranks() && world.now_ns() < hang_ns / 2) {
      sys::Wait pause(world.scheduler(), world.now_ns() + second_ns / 100);
      co_await pause;
    }
  }
  void start(int rank) { simulation.start(rank, run_rank(rank, rank, ranks())); }
  void start_all() {
    for (int rank = 0; rank < ranks(); ++rank) start(rank);
  }
  void expect_success(const std::string& what) {
    ASSERT_TRUE(simulation.run(hang_ns)) << what;
    EXPECT_EQ(joined_ranks, ranks()) << what;
    for (const auto& error : errors) EXPECT_FALSE(error) << what << ": " << error->describe();
  }
  static sys::Address name() { return HostRendezvous::name(enrolment_key("a secret"), rendezvous); }

  sys::Simulation simulation;
  std::vector<std::optional<Error>> errors;
  int fan_out;
  int joined_ranks = 0;
  int admitted_by_rank_0 = 0;
  std::int64_t ended_ns = 0;
};

TEST(Gathering, RankZeroIsVisitedOnceByEachHost) {
  constexpr int hosts = 20;
  for (const Layout layout : {block, cyclic})
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      GatheredJob job(160, hosts, 3, seed, layout);
      job.start_all();
      job.expect_success(str(layout == block ? "block" : "cyclic", ", seed ", seed));
      // Its children enrol.
      EXPECT_LE(job.admitted_by_rank_0, hosts + job.fan_out);
      EXPECT_LT(job.ended_ns, 2 * second_ns);
    }
}

TEST(Gathering, MoreRanksOfAHostThanMayWaitComeAgain) {
  GatheredJob job(100, 2, 3, 3);
  job.start_all();
  job.expect_success("50 ranks a host");
  EXPECT_LE(job.admitted_by_rank_0, 2 + job.fan_out);
}

// Another process of the host has the name, and says nothing.
TEST(Gathering, AStrangerThatHoldsTheNameIsPassedBy) {
  GatheredJob job(40, 5, 3, 7);
  const int stranger = job.simulation.add_process("host2");
  const auto hold = [&]() -> sys::Task<void> {
    sys::World& world = job.simulation.world(stranger);
    Result<std::unique_ptr<sys::Listener>> listener = world.listen(GatheredJob::name());
    EXPECT_TRUE(listener.ok());
    sys::Wait wait(world.scheduler(), 60 * second_ns);
    co_await wait;
  };
  job.simulation.start(stranger, hold());
  job.start_all();
  job.expect_success("a stranger");
  EXPECT_LT(job.ended_ns, timeout_ns / 2);
}

TEST(Gathering, AHolderThatLeadsAstrayIsNamed) {
  const auto told = [](const Directions& directions) {
    GatheredJob job(40, 5, 3, 7);
    const int liar = job.simulation.add_process("host4");
    const auto lie = [&]() -> sys::Task<void> {
      sys::World& world = job.simulation.world(liar);
      const auto held =
          HostRendezvous::open(world, GatheredJob::name(), enrolment_key("a secret"), 40);
      held->tell(directions);
      sys::Wait wait(world.scheduler(), 60 * second_ns);
      co_await wait;
    };
    job.simulation.start(liar, lie());
    job.start(39);
    EXPECT_TRUE(job.simulation.run(hang_ns));
    return job.errors[39].value_or(Error{});
  };
  for (const std::uint32_t rank : {0U, 2U, 39U, 40U, 0xffffffffU}) {
    const Error error = told({Directions::Kind::next, rank, "host4:1"});
    EXPECT_NE(error.message.find(str("on to rank ", rank, ", which is not on its way")),
              std::string::npos)
        << error.describe();
  }
  EXPECT_NE(told({Directions::Kind::next, 1, "nowhere"}).message.find("nowhere"),
            std::string::npos);
}

TEST(Gathering, MissingRanksAreNamedToAll) {
  GatheredJob job(30, 8, 2, 3);
  for (int rank = 0; rank < 30; ++rank)
    if (rank != 1 && rank != 20 && rank != 21) job.start(rank);
  ASSERT_TRUE(job.simulation.run(hang_ns));
  for (int rank = 0; rank < 30; ++rank) {
    if (rank == 1 || rank == 20 || rank == 21) continue;
    const auto& error = job.errors[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(error) << rank;
    EXPECT_TRUE(error->timed_out) << rank << ": " << error->describe();
  }
  EXPECT_NE(job.errors[0]->message.find("missing: 1, 20, 21"), std::string::npos)
      << job.errors[0]->message;
}

TEST(Gathering, ADeathAtAnyTimeIsNamed) {
  int failed = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    GatheredJob job(30, 6, 3, seed, seed % 2 == 0 ? block : cyclic);
    const int victim = 1 + static_cast<int>(seed * 7 % 29);
    kill_at(job.simulation, victim, static_cast<std::int64_t>(seed) * 300'000, sys::Death::process);
    job.start_all();
    ASSERT_TRUE(job.simulation.run(hang_ns)) << "seed " << seed;
    const auto& known = job.errors[0];
    failed += known.has_value();
    if (known) {
      EXPECT_EQ(known->peer, victim) << "seed " << seed << ": " << known->describe();
    }
    EXPECT_TRUE(job.simulation.is_quiet());
  }
  EXPECT_GT(failed, 20);
}

// It is not the rank that leads its host that decides which number is right.
TEST(Gathering, AnotherNumberOfRanksIsNamedToAll) {
  GatheredJob job(30, 6, 3, 3);
  for (int rank = 0; rank < 30; ++rank)
    if (rank != 17) job.start(rank);
  job.simulation.start(17, job.run_rank(17, 17, 31));
  ASSERT_TRUE(job.simulation.run(hang_ns));
  for (const auto& error : job.errors) {
    ASSERT_TRUE(error);
    EXPECT_NE(error->message.find("the world size differs: rank 17"), std::string::npos)
        << error->describe();
  }
}

}  // namespace
}  // namespace unisono::comm
