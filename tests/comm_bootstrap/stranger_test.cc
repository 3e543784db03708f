// Strangers in numbers, over real sockets: ranks get in all the same.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>

#include "real_ranks.h"
#include "stranger.h"
#include "support/quiet.h"

namespace unisono::comm {
namespace {

// How long four ranks take to find each other, in seconds.
double start_ranks(RendezvousListener listener) {
  const std::string rendezvous = listener.rendezvous();
  const auto begun = std::chrono::steady_clock::now();
  run_ranks(4, [&](int rank) {
    const BootstrapOptions options{.rank = rank,
                                   .world_size = 4,
                                   .rendezvous = rendezvous,
                                   .secret = "the secret of this test",
                                   .timeout_ns = 30 * second_ns};
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

// The promise is half a second on a machine that does nothing else.
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
  EXPECT_LT(seconds, 2.0);
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
  EXPECT_LT(seconds, 5.0);
}

}  // namespace
}  // namespace unisono::comm
