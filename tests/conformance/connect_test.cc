// How connections come to be, side by side, and which are refused.

#include <sys/stat.h>

#include <algorithm>

#include "conformance/harness.h"

namespace unisono::test {
namespace {

class Connect : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, Connect, testing::ValuesIn(factories_inside_a_process()),
                         factory_name);

constexpr Geometry small{.region_bytes = 4096, .signals = 2};

// One value each way proves that the two ends have each other.
testing::AssertionResult exchanges(Job& job, Connection& a, Connection& b, std::uint64_t value) {
  for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    if (auto sent = put(*from, &value, sizeof value, 8, {1, value}); !sent) return sent;
    const bool arrived = eventually([&, from = from, to = to] {
      job.progress();
      EXPECT_TRUE(progress_all({from, to}).ok());
      return signals_of(*to)[1].load(std::memory_order_acquire) == value;
    });
    if (!arrived) return testing::AssertionFailure() << "value " << value << " does not arrive";
    std::uint64_t got = 0;
    std::memcpy(&got, region_of(*to) + 8, sizeof got);
    if (got != value) return testing::AssertionFailure() << "got " << got << " for " << value;
    value += 1;
  }
  return testing::AssertionSuccess();
}

void make_ready(Job& job, std::initializer_list<Connection*> ends) {
  EXPECT_TRUE(eventually([&] {
    job.progress();
    return std::count_if(ends.begin(), ends.end(), [](Connection* end) {
             return is_ready(*end);
           }) == static_cast<std::ptrdiff_t>(ends.size());
  }));
}

// Long enough for what is wrong to show, in steps and not in time.
void turn(Job& job, std::initializer_list<Connection*> ends, int times = 300) {
  for (int i = 0; i < times; ++i) {
    job.progress();
    for (Connection* end : ends) (void)end->ready();
    std::this_thread::yield();
  }
}

TEST_P(Connect, EitherEndMayBeFirstAndLate) {
  for (const int first : {0, 1}) {
    Job job(GetParam(), 2);
    auto early = must(job.connect(first, 1 - first, small));
    for (int i = 0; i < 200; ++i) {
      job.progress();
      auto ready = early->ready();
      ASSERT_TRUE(ready.ok()) << ready.error().describe();
      ASSERT_FALSE(*ready);
    }
    auto late = must(job.connect(1 - first, first, small));
    make_ready(job, {early.get(), late.get()});
    EXPECT_TRUE(exchanges(job, *early, *late, 5));
  }
}

TEST_P(Connect, AllPairsOnSeveralChannelsAtOnce) {
  constexpr int ranks = 7;
  constexpr std::uint32_t channels = 2;
  Job job(GetParam(), ranks);
  struct Both {
    std::unique_ptr<Connection> a, b;
  };
  std::vector<Both> pairs;
  for (std::uint32_t channel = 0; channel < channels; ++channel)
    for (int a = 0; a < ranks; ++a)
      for (int b = a + 1; b < ranks; ++b)
        pairs.push_back({.a = must(job.connect(a, b, small, {.channel = channel})), .b = nullptr});
  std::size_t at = 0;
  for (std::uint32_t channel = 0; channel < channels; ++channel)
    for (int a = 0; a < ranks; ++a)
      for (int b = a + 1; b < ranks; ++b)
        pairs[at++].b = must(job.connect(b, a, small, {.channel = channel}));
  for (Both& both : pairs) make_ready(job, {both.a.get(), both.b.get()});
  std::uint64_t value = 1;
  for (Both& both : pairs) EXPECT_TRUE(exchanges(job, *both.a, *both.b, value += 10));
}

TEST_P(Connect, CommunicatorsEpochsAndChannelsDoNotMix) {
  Job job(GetParam(), 2);
  const std::vector<ConnectionKey> keys{{.communicator = 1, .epoch = 0, .channel = 0},
                                        {.communicator = 1, .epoch = 0, .channel = 1},
                                        {.communicator = 1, .epoch = 1, .channel = 0},
                                        {.communicator = 0xfedcba9876543210, .epoch = 0},
                                        {.communicator = 2, .epoch = 0xffffffff, .channel = 7}};
  std::vector<Pair> pairs(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i)
    pairs[i].a = must(job.connect(0, 1, small, keys[i]));
  for (std::size_t i = keys.size(); i-- > 0;) pairs[i].b = must(job.connect(1, 0, small, keys[i]));
  std::uint64_t value = 1;
  for (Pair& pair : pairs) {
    make_ready(job, {pair.a.get(), pair.b.get()});
    EXPECT_TRUE(exchanges(job, *pair.a, *pair.b, value += 10));
  }
}

TEST_P(Connect, AnotherEpochIsNotConnected) {
  Job job(GetParam(), 2);
  auto old_epoch = must(job.connect(0, 1, small, {.epoch = 3}));
  auto new_epoch = must(job.connect(1, 0, small, {.epoch = 4}));
  turn(job, {old_epoch.get(), new_epoch.get()});
  for (Connection* end : {old_epoch.get(), new_epoch.get()}) {
    const auto ready = end->ready();
    EXPECT_FALSE(ready.ok() && *ready);
  }
  auto right = must(job.connect(0, 1, small, {.epoch = 4}));
  make_ready(job, {right.get(), new_epoch.get()});
  EXPECT_TRUE(exchanges(job, *right, *new_epoch, 9));
}

TEST_P(Connect, AnotherGeometryIsAnErrorThatSaysSo) {
  const std::vector<Geometry> others{{.region_bytes = 8192, .signals = 2},
                                     {.region_bytes = 4096, .signals = 3},
                                     {.region_bytes = 4096, .signals = 2, .layout = 1}};
  for (const Geometry& other : others) {
    Job job(GetParam(), 2);
    auto a = must(job.connect(0, 1, small));
    auto b = must(job.connect(1, 0, other));
    std::string told;
    EXPECT_TRUE(eventually([&] {
      job.progress();
      for (Connection* end : {a.get(), b.get()}) {
        const auto ready = end->ready();
        if (!ready.ok()) told = ready.error().message;
        EXPECT_FALSE(ready.ok() && *ready);
      }
      return !told.empty();
    }));
    EXPECT_NE(told.find("layout"), std::string::npos) << told;
  }
}

TEST_P(Connect, WithoutTheSecretIsRefusedAndOthersGoOn) {
  const std::string name = fresh_job();
  Job job(GetParam(), 3, name);
  auto stranger = GetParam().make(Job::options(name, "a guess"));
  ASSERT_TRUE(stranger.ok());
  job.transports.push_back(std::move(job.transports[1]));
  job.transports[1] = std::move(*stranger);
  auto a = must(job.connect(0, 1, small));
  auto b = must(job.connect(1, 0, small));
  turn(job, {a.get(), b.get()});
  for (Connection* end : {a.get(), b.get()}) {
    const auto ready = end->ready();
    EXPECT_FALSE(ready.ok() && *ready);
  }
  auto c = must(job.connect(0, 2, small));
  auto d = must(job.connect(2, 0, small));
  make_ready(job, {c.get(), d.get()});
  EXPECT_TRUE(exchanges(job, *c, *d, 3));
}

TEST_P(Connect, TheSameKeyAgainWhenBothEndsHaveGone) {
  Job job(GetParam(), 2);
  for (int round = 0; round < 3; ++round) {
    Pair pair(job, small);
    EXPECT_EQ(signals_of(*pair.a)[1].load(), 0u);
    EXPECT_TRUE(exchanges(job, *pair.a, *pair.b, 4));
    if (round % 2 == 0) pair.a.reset();
    turn(job, {});
  }
}

TEST_P(Connect, RefusesWhatCannotBe) {
  Job job(GetParam(), 2);
  const auto kept = must(job.connect(0, 1, small));
  const auto expect_misuse = [](const Result<std::unique_ptr<Connection>>& made) {
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().kind, ErrorKind::misuse) << made.error().describe();
  };
  expect_misuse(job.connect(0, 1, small));
  expect_misuse(job.connect(1, 1, small, {.channel = 1}));
  for (const auto& [self, peer] : {std::pair{Job::ranks, 0}, {-1, 0}, {0, Job::ranks}, {0, -1}})
    expect_misuse(job.transports[0]->connect({.key = {.channel = 5},
                                              .ranks = Job::ranks,
                                              .self = self,
                                              .peer = peer,
                                              .peer_address = job.transports[1]->address(),
                                              .geometry = small}));
  expect_misuse(job.connect(0, 1, {.region_bytes = ~std::size_t{0}, .signals = 1}, {.channel = 2}));
  expect_misuse(job.connect(0, 1, {.region_bytes = 1, .signals = -1}, {.channel = 3}));
  expect_misuse(job.connect(0, 1, {.region_bytes = 1, .signals = 1 << 30}, {.channel = 4}));
}

TEST_P(Connect, NeedsTheJobsKey) {
  const auto made = GetParam().make({});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind, ErrorKind::bug);
}

TEST_P(Connect, AddressesFitTheBootstrap) {
  Job job(GetParam(), 1);
  EXPECT_LE(job.transports[0]->address().size(), Transport::max_address_bytes);
  EXPECT_FALSE(job.transports[0]->name().empty());
}

TEST_P(Connect, MemoryGrowsAsItIsTouched) {
  constexpr std::size_t region_bytes = 16u << 20;
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = region_bytes, .signals = 2});
  const std::size_t before = pair.b->memory_bytes();
  if (pair.b->device_link() != nullptr || GetParam().pins_memory) {
    // A GPU's is there at once, and so is what a network card pins.
    EXPECT_GE(before, region_bytes);
    EXPECT_LT(before, region_bytes + (std::size_t{1} << 20));
    return;
  }
  EXPECT_GT(before, 0u);
  EXPECT_LT(before, std::size_t{1} << 20);
  const std::vector<std::byte> source(4u << 20, std::byte{1});
  std::thread receiver([&] { EXPECT_TRUE(wait_for_signal(*pair.b, 0, 1)); });
  EXPECT_TRUE(put(*pair.a, source.data(), source.size(), 100, {0, 1}));
  EXPECT_TRUE(wait_for_completion(*pair.a));
  receiver.join();
  const std::size_t after = pair.b->memory_bytes();
  EXPECT_GE(after, before + source.size() - 4096);
  EXPECT_LT(after, before + source.size() + (std::size_t{1} << 20));
  EXPECT_LT(pair.a->memory_bytes(), std::size_t{2} << 20);
}

}  // namespace
}  // namespace unisono::test
