// Strangers in numbers, over real sockets: ranks get in all the same.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unisono/invitation.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <random>
#include <thread>

#include "comm/control/handshake.h"
#include "comm/control/node.h"
#include "comm/join/invitation.h"
#include "comm/join/join.h"
#include "stranger.h"
#include "support/quiet.h"
#include "support/real_ranks.h"
#include "sys/real_world.h"
#include "sys/simulated_world.h"

namespace unisono::comm {
namespace {

// Returns how many seconds four ranks took to find each other. Each stranger that they waited for
// would hold them up for a second, and all strangers together for longer than the timeout.
double start_ranks(RendezvousListener listener) {
  const std::string rendezvous = listener.rendezvous();
  const auto begun = std::chrono::steady_clock::now();
  run_ranks(4, [&](int rank) {
    const BootstrapOptions options{.rank = rank,
                                   .world_size = 4,
                                   .rendezvous = rendezvous,
                                   .secret = "the secret of this test",
                                   .timeout_ns = 60 * second_ns};
    const auto result = rank == 0 ? bootstrap(options, {}, std::move(listener))
                                  : bootstrap(options, SelfDescription{});
    EXPECT_TRUE(result.ok()) << result.error().describe();
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

class Strangers : public testing::Test {
 protected:
  void SetUp() override {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
};

// What somebody without a key can try at any port of the control plane: to stay silent, noise of
// any length, and each kind of handshake with another key. Those without a handshake stay open.
class Attack {
 public:
  explicit Attack(const std::string& where)
      : address_(*sys::Address::parse(where.substr(where.rfind("//") + 2))) {
    std::mt19937_64 random(1);
    for (const std::size_t length : {0, 1, 8, 40, 41, 200, 70'000}) {
      open_.push_back(connect_as_stranger(where));
      EXPECT_GE(open_.back(), 0);
      std::vector<char> noise(length);
      for (char& byte : noise) byte = static_cast<char>(random());
      send(open_.back(), noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }
  ~Attack() {
    for (const int one : open_) close(one);
  }
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;

  // Returns when all that prove another key have been refused, or nobody listens any more.
  void prove() const {
    const auto world = std::move(*sys::RealWorld::create());
    EXPECT_EQ(world->run(prove_all(*world, address_)), 0) << "a stranger was let in";
  }

 private:
  // How many attempts succeed.
  static sys::Task<int> prove_all(sys::World& world, sys::Address address) {
    const Key key = enrolment_key("a guess");
    const std::int64_t deadline_ns = world.now_ns() + 60 * second_ns;
    int admitted = 0;
    Refusal refusal{};
    for (const Purpose purpose : {Purpose::enrolment, Purpose::link}) {
      auto stream = co_await world.connect(address, deadline_ns);
      if (!stream.ok()) co_return admitted;
      auto channel =
          co_await prove_to_server(world, std::move(*stream), purpose, key,
                                   {sys::Protection::authenticate, true}, deadline_ns, refusal);
      admitted += channel.ok();
    }
    auto stream = co_await world.connect(address, deadline_ns);
    if (!stream.ok()) co_return admitted;
    auto directions =
        co_await ask_for_directions(std::move(*stream), {1, 2}, key, deadline_ns, refusal);
    admitted += directions.ok();
    co_return admitted;
  }

  const sys::Address address_;
  std::vector<int> open_;
};

TEST_F(Strangers, AtTheRendezvousAreNotLetInAndKeepNobodyOut) {
  auto listener = RendezvousListener::open("127.0.0.1");
  const std::string where = listener->rendezvous();
  const Attack attack(where);
  std::thread strangers([&] { attack.prove(); });
  start_ranks(std::move(*listener));
  strangers.join();
}

TEST_F(Strangers, AtARunningRanksPortAreNotLetInAndStopNoCall) {
  auto results = bootstrap_all(3);
  std::vector<std::string> ports;
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok()) << result.error().describe();
    ports.push_back("tcp://" + result->world->node()->address().text());
  }
  std::thread strangers([&] {
    for (const std::string& port : ports) Attack(port).prove();
  });
  // A rank serves its port while it is in a call, so calls go on until all strangers have been
  // told.
  std::atomic<bool> is_over{false};
  std::thread end([&] {
    strangers.join();
    is_over.store(true, std::memory_order_release);
  });
  run_ranks(3, [&](int rank) {
    ControlGroup& world = *results[static_cast<std::size_t>(rank)]->world;
    for (bool goes_on = true; goes_on;) {
      const std::byte mine{is_over.load(std::memory_order_acquire)};
      const auto gathered = world.all_gather({&mine, 1}, 60 * second_ns);
      ASSERT_TRUE(gathered.ok()) << gathered.error().describe();
      goes_on = (*gathered)[0][0] == std::byte{0};
    }
  });
  end.join();
}

TEST_F(Strangers, AtAnInvitationAreNotLetInAndKeepNobodyOut) {
  const auto invitation = invite({.interface = "127.0.0.1"});
  ASSERT_TRUE(invitation.ok()) << invitation.error().message;
  const std::string& where = invitation->rendezvous;
  const Attack attack(where.substr(0, where.rfind('/')));
  attack.prove();
  run_ranks(2, [&](int rank) {
    BootstrapOptions options{.rank = rank,
                             .world_size = 2,
                             .rendezvous = where,
                             .secret = invitation->secret,
                             .timeout_ns = 60 * second_ns};
    auto listener = follow_invitation(options);
    ASSERT_TRUE(listener.ok()) << listener.error().describe();
    const auto result = rank == 0 ? bootstrap(options, {}, std::move(**listener))
                                  : bootstrap(options, SelfDescription{});
    EXPECT_TRUE(result.ok()) << result.error().describe();
  });
}

// The ranks wait for no stranger's second to pass. The time is virtual: a busy machine takes none.
TEST(StrangersInSimulation, ThatSayNothingDoNotDelayTheStart) {
  constexpr int ranks = 4, strangers = 500;
  sys::Simulation simulation({.seed = 3});
  for (const char* host : {"host0", "host1", "host2", "host3", "elsewhere"})
    simulation.add_process(host);
  const sys::Address rendezvous{"host0", 29500};
  std::int64_t came_ns = 0, last_ns = 0;
  int joined = 0;
  const auto pause = [](sys::World& world, std::int64_t until_ns) -> sys::Task<void> {
    sys::Wait wait(world.scheduler(), until_ns);
    co_await wait;
  };
  const auto join = [&](int rank) -> sys::Task<void> {
    sys::World& world = simulation.world(rank);
    while (rank > 0 && came_ns == 0) co_await pause(world, world.now_ns() + second_ns / 1000);
    const BootstrapOptions options{.rank = rank,
                                   .world_size = ranks,
                                   .rendezvous = "tcp://" + rendezvous.text(),
                                   .secret = "the secret of this test",
                                   .timeout_ns = 60 * second_ns};
    const SelfDescription self;
    Result<Joined> one = co_await join_job(world, options, self, nullptr);
    EXPECT_TRUE(one.ok()) << one.error().describe();
    joined += one.ok();
    last_ns = world.now_ns();
  };
  const auto come = [&]() -> sys::Task<void> {
    sys::World& world = simulation.world(ranks);
    co_await pause(world, world.now_ns() + second_ns / 10);
    std::vector<std::unique_ptr<sys::Stream>> idle;
    for (int i = 0; i < strangers; ++i) {
      auto stream = co_await world.connect(rendezvous, world.now_ns() + 10 * second_ns);
      EXPECT_TRUE(stream.ok()) << stream.error().describe();
      if (stream.ok()) idle.push_back(std::move(*stream));
    }
    came_ns = world.now_ns();
    co_await pause(world, world.now_ns() + 30 * second_ns);
  };
  for (int rank = 0; rank < ranks; ++rank) simulation.start(rank, join(rank));
  simulation.start(ranks, come());
  EXPECT_TRUE(simulation.run(120 * second_ns));
  EXPECT_EQ(joined, ranks);
  // The first stranger's second ends a tenth later.
  EXPECT_LT(last_ns, second_ns);
}

TEST_F(Strangers, ThatSayNothingDoNotDelayTheStart) {
  auto listener = RendezvousListener::open("127.0.0.1");
  const std::string where = listener->rendezvous();
  std::vector<int> idle;
  for (int i = 0; i < 500; ++i) {
    idle.push_back(connect_as_stranger(where));
    ASSERT_GE(idle.back(), 0);
  }
  const double seconds = start_ranks(std::move(*listener));
  std::printf("4 ranks found each other in %.3f s beside 500 idle connections\n", seconds);
  for (const int one : idle) close(one);
}

// As fast as one thread can connect; half of them talk, and none is closed before the start is over
// but by the ranks.
TEST_F(Strangers, ThatComeInAFloodDoNotDelayTheStart) {
  auto listener = RendezvousListener::open("127.0.0.1");
  const std::string where = listener->rendezvous();
  std::atomic<bool> is_over{false};  // relaxed: nothing is read because of it
  std::atomic<int> came{0};          // relaxed: a number for people
  std::thread flood([&] {
    std::vector<int> open;
    const std::vector<char> noise(200, 'x');
    while (!is_over.load(std::memory_order_relaxed)) {
      const int one = connect_as_stranger(where);
      if (one < 0) continue;
      const int number = came.fetch_add(1, std::memory_order_relaxed);
      if (number % 2 == 0) send(one, noise.data(), noise.size(), MSG_NOSIGNAL);
      open.push_back(one);
      if (open.size() < 2000) continue;
      for (const int old : open) close(old);
      open.clear();
    }
    for (const int old : open) close(old);
  });
  while (came.load(std::memory_order_relaxed) < 1000) std::this_thread::yield();
  const double seconds = start_ranks(std::move(*listener));
  is_over.store(true, std::memory_order_relaxed);
  flood.join();
  std::printf("4 ranks found each other in %.3f s beside %d connections of strangers\n", seconds,
              came.load(std::memory_order_relaxed));
}

}  // namespace
}  // namespace unisono::comm
