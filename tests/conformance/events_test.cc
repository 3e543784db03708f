// What a transport tells of by itself, and what it refuses of an epoch that is over.

#include <poll.h>

#include "base/open_epochs.h"
#include "conformance/harness.h"

namespace unisono::test {
namespace {

class Events : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, Events, testing::ValuesIn(factories_inside_a_process()),
                         factory_name);

constexpr Geometry little{.region_bytes = 4096, .signals = 2};
constexpr std::uint64_t puts = 50;
constexpr std::int64_t slice_ns = 1'000'000;

// Rank 0 puts, and rank 1 looks only after `has_woken` says so: every put arrives.
template <class HasWoken, class Look>
void expect_all_arrive(Job& job, HasWoken has_woken, Look look) {
  const Pair pair(job, little);
  for (std::uint64_t value = 1; value <= puts; ++value) {
    ASSERT_TRUE(put(*pair.a, &value, sizeof value, 8, {1, value}));
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(job.transports[0]->progress().ok());
      EXPECT_TRUE(pair.a->progress().ok());
      if (has_woken()) {
        EXPECT_TRUE(look(*pair.b).ok());
      }
      return signals_of(*pair.b)[1].load(std::memory_order_acquire) == value;
    })) << "nothing tells rank 1 of put "
        << value;
  }
}

TEST_P(Events, WhoSleepsOnTheDescriptorMissesNothing) {
  Job job(GetParam(), 2);
  Transport& receiver = *job.transports[1];
  const int descriptor = receiver.event_descriptor();
  if (descriptor < 0) GTEST_SKIP() << "it has no descriptor; who waits looks again and again";
  expect_all_arrive(
      job,
      [&] {
        pollfd one{.fd = descriptor, .events = POLLIN, .revents = 0};
        return poll(&one, 1, 1) == 1;
      },
      [&](Connection& end) {
        EXPECT_TRUE(receiver.progress().ok());
        return end.progress();
      });
}

TEST_P(Events, WhoSleepsInTheTransportMissesNothing) {
  Job job(GetParam(), 2);
  Transport& receiver = *job.transports[1];
  if (!receiver.sleep(0)) GTEST_SKIP() << "it does not sleep by itself";
  expect_all_arrive(
      job, [&] { return receiver.sleep(slice_ns); },
      [](Connection& end) { return end.progress_known(); });
}

TEST_P(Events, NobodyIsConnectedInAnEpochThatIsOver) {
  const auto epochs = std::make_shared<OpenEpochs>();
  int made = 0;
  Factory factory = GetParam();
  factory.make = [&, make = GetParam().make](TransportOptions options) {
    if (made++ == 1) options.epochs = epochs;
    return make(options);
  };
  Job job(factory, 2);
  epochs->open(3);
  epochs->open(4);
  {
    const Pair current(job, little, {.epoch = 3});
  }
  epochs->close(3);
  auto stale = must(job.connect(0, 1, little, {.epoch = 3}));
  // What is refused may be told, or the end waits for one that never comes.
  bool is_ready = false;
  for (int i = 0; i < 300; ++i) {
    job.progress();
    const Result<bool> ready = stale->ready();
    is_ready |= ready.ok() && *ready;
    std::this_thread::yield();
  }
  EXPECT_FALSE(is_ready);
  const Pair newest(job, little, {.epoch = 4});
}

}  // namespace
}  // namespace unisono::test
