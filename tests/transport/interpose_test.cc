// That the interposing transport makes the trouble it was asked for.

#include "transport/interpose/transport.h"

#include <algorithm>

#include "conformance/harness.h"
#include "transport/counted_clock.h"
#include "transport/shm/transport.h"

namespace unisono::test {
namespace {

using transport::interpose::Options;

Factory over_shm(const Options& options) {
  return {"interposed",
          [options](const TransportOptions& with) -> Result<std::unique_ptr<Transport>> {
            auto inner = transport::shm::make_transport(with);
            if (!inner.ok()) return inner.take_error();
            return transport::interpose::make_transport(std::move(*inner), options);
          },
          true};
}

constexpr std::size_t puts = 200;
constexpr Geometry geometry{.region_bytes = puts, .signals = 1};

// In which order the bytes of unsignalled puts become visible.
std::vector<std::size_t> order_of_arrival(const Options& options) {
  // No look comes late, and so sees all of them at once, in the order in which it looks.
  const CountedClock clock;
  Job job(over_shm(options), 2);
  Pair pair(job, geometry);
  const std::vector<std::byte> source(puts, std::byte{1});
  for (std::size_t i = 0; i < puts; ++i) EXPECT_TRUE(put(*pair.a, &source[i], 1, i));
  std::vector<bool> seen(puts);
  std::vector<std::size_t> order;
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(pair.a->progress().ok());
    for (std::size_t i = 0; i < puts; ++i) {
      if (seen[i] || pair.b->region()[i] == std::byte{0}) continue;
      seen[i] = true;
      order.push_back(i);
    }
    return order.size() == puts;
  }));
  return order;
}

TEST(Interpose, ReordersOnlyWhenAsked) {
  const Options delayed{.seed = 4, .max_delay_ns = 200'000};
  EXPECT_TRUE(std::ranges::is_sorted(order_of_arrival(delayed)));
  Options reordered = delayed;
  reordered.reorder = true;
  EXPECT_FALSE(std::ranges::is_sorted(order_of_arrival(reordered)));
}

TEST(Interpose, DelaysByAtLeastTheMinimum) {
  constexpr std::int64_t delay_ns = 5'000'000;
  Job job(over_shm({.min_delay_ns = delay_ns, .max_delay_ns = delay_ns}), 2);
  Pair pair(job, geometry);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(put(*pair.a, "x", 1, 0, {0, 1}));
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(pair.a->progress().ok());
    return pair.b->signals()[0].load() == 1;
  }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::nanoseconds(delay_ns));
}

TEST(Interpose, LimitsTheBandwidth) {
  constexpr std::size_t bytes = 1 << 20;
  Job job(over_shm({.bytes_per_second = 50'000'000}), 2);
  Pair pair(job, {.region_bytes = bytes, .signals = 1});
  const std::vector<std::byte> source(bytes);
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 1; i <= 4; ++i)
    EXPECT_TRUE(put(*pair.a, source.data(), bytes / 4, 0, {0, i}));
  EXPECT_TRUE(wait_for_completion(*pair.a));
  // 1 MiB at 50 MB/s takes 20.9 ms.
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(20));
}

TEST(Interpose, AFatalLossIsAnErrorAtBothEnds) {
  Job job(over_shm({.seed = 9, .loss = 0.2, .loss_is_fatal = true}), 2);
  Pair pair(job, geometry);
  const Error here = until_error([&]() -> Status {
    auto taken = pair.a->try_put("x", 1, 0, {});
    if (!taken.ok()) return taken.take_error();
    return pair.a->progress();
  });
  EXPECT_TRUE(here.timed_out);
  EXPECT_EQ(here.peer, 1);
  EXPECT_TRUE(until_error([&] { return pair.b->progress(); }).timed_out);
}

TEST(Interpose, DiesAtTheNthPutOfTheTransport) {
  constexpr std::uint64_t last = 7;
  Job job(over_shm({.die_at_put = last}), 3);
  Pair first(job, geometry);
  auto to_2 = must(job.connect(0, 2, geometry));
  auto from_2 = must(job.connect(2, 0, geometry));
  ASSERT_TRUE(eventually([&] { return is_ready(*to_2) && is_ready(*from_2); }));
  for (std::uint64_t i = 1; i <= last; ++i) {
    EXPECT_TRUE(first.a->progress().ok()) << "before put " << i;
    Connection& connection = i % 2 == 1 ? *first.a : *to_2;
    EXPECT_TRUE(connection.try_put("x", 1, 0, {}).ok());
  }
  EXPECT_EQ(until_error([&] { return first.b->progress(); }).peer, 0);
  EXPECT_EQ(until_error([&] { return first.a->progress(); }).peer, 0);
}

TEST(Interpose, TheSameSeedMakesTheSameTrouble) {
  // Without delays the order depends on the seed alone.
  const auto order = [](std::uint64_t seed) {
    Job job(over_shm({.seed = seed, .reorder = true, .loss = 0.5, .retransmit_ns = 0}), 2);
    Pair pair(job, geometry);
    const std::vector<std::byte> source(puts, std::byte{1});
    std::vector<std::size_t> moved;
    for (std::size_t i = 0; i < puts; ++i) {
      EXPECT_TRUE(put(*pair.a, &source[i], 1, i));
      moved.push_back(pair.a->puts_completed());
    }
    return moved;
  };
  EXPECT_EQ(order(5), order(5));
  EXPECT_NE(order(5), order(6));
}

}  // namespace
}  // namespace unisono::test
