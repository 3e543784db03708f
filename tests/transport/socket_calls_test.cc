// How often a small message between hosts calls the system: counts, which do not depend on the
// machine's speed.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "conformance/harness.h"
#include "support/counted_calls.h"
#include "support/sanitized.h"
#include "transport/socket/transport.h"

namespace unisono::test {
namespace {

Factory over_sockets() { return {"socket", transport::socket::make_transport, true}; }

constexpr std::int64_t second_ns = 1'000'000'000;

class SocketCalls : public testing::Test {
 protected:
  void SetUp() override {
    if (is_sanitized) GTEST_SKIP() << "a sanitizer wraps system calls itself";
  }
};

// The sender ends its system calls before the receiver begins its own.
TEST_F(SocketCalls, AMessageIsOneSendOneWaitAndOneReceive) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}}) {
    Job job(over_sockets(), 2);
    const Pair pair(job, {.region_bytes = 1 << 16, .signals = 1});
    const std::vector<std::byte> source(bytes, std::byte{7});
    // What has been noticed while the connection was made.
    for (int i = 0; i < 100; ++i) {
      job.progress();
      EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
    }
    CountedCalls& calls = CountedCalls::of_this_thread();
    for (std::uint64_t number = 1; number <= 20; ++number) {
      calls.reset();
      EXPECT_TRUE(*pair.a->try_put(source.data(), bytes, 0, {0, number}));
      EXPECT_EQ(calls.sends, 1);
      EXPECT_EQ(pair.a->puts_completed(), number);
      while (pair.b->signals()[0].load(std::memory_order_acquire) < number) {
        ASSERT_TRUE(job.transports[1]->sleep(60 * second_ns));
        ASSERT_TRUE(pair.b->progress_known().ok());
      }
      EXPECT_EQ(calls.receives, 1) << bytes << " bytes";
      EXPECT_EQ(calls.events, 1);
      EXPECT_EQ(calls.looks, 0);
      EXPECT_EQ(pair.b->region()[bytes - 1], std::byte{7});
    }
  }
}

TEST(SocketSleep, EndsWithoutAnEventWhenItsTimeIsUp) {
  Job job(over_sockets(), 1);
  CountedCalls& calls = CountedCalls::of_this_thread();
  calls.reset();
  EXPECT_TRUE(job.transports[0]->sleep(1000));
  EXPECT_EQ(calls.events, 0);
}

// One of two threads finds what has come for both; the other sleeps on the descriptor.
TEST(SocketSleep, IsOfOneThreadAtATime) {
  Job job(over_sockets(), 2);
  Pair pair(job, {.region_bytes = 1 << 16, .signals = 1});
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(pair.b->progress().ok());
  Transport& own = *job.transports[1];
  std::atomic<bool> is_over{false};
  std::thread sleeper([&] {
    while (!is_over.load()) own.sleep(second_ns / 100);
  });
  EXPECT_TRUE(eventually([&] { return !own.sleep(0); }));
  is_over.store(true);
  sleeper.join();
  EXPECT_TRUE(own.sleep(0)) << "when the first has woken up, another one may";
}

}  // namespace
}  // namespace unisono::test
