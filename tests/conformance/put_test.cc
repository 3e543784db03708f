// Puts and signals: where bytes land, in which order they are seen, and what is refused.

#include <algorithm>
#include <atomic>
#include <thread>

#include "conformance/harness.h"
#include "support/sanitized.h"

namespace unisono::test {
namespace {

class Put : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, Put, testing::ValuesIn(factories_inside_a_process()), factory_name);

constexpr std::uint64_t seed = 20261120;

TEST_P(Put, RegionsStartZeroedAndAligned) {
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = 100'003, .signals = 5});
  for (Connection* end : {pair.a.get(), pair.b.get()}) {
    const bool is_of_device = end->device_link() != nullptr;
    EXPECT_EQ(end->region() == nullptr, is_of_device);
    EXPECT_EQ(end->signals() == nullptr, is_of_device);
    const std::size_t alignment = is_of_device ? transport::DeviceLink::alignment : 4096;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region_of(*end)) % alignment, 0u);
    for (std::size_t i = 0; i < 100'003; ++i)
      ASSERT_EQ(region_of(*end)[i], std::byte{0}) << "at byte " << i;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(signals_of(*end)[i].load(), 0u);
  }
  EXPECT_EQ(pair.a->self(), 0);
  EXPECT_EQ(pair.a->peer(), 1);
  EXPECT_EQ(pair.a->host_link() == nullptr, pair.b->host_link() == nullptr);
  EXPECT_EQ(pair.a->device_link() == nullptr, pair.b->device_link() == nullptr);
  EXPECT_TRUE(pair.a->host_link() == nullptr || pair.a->device_link() == nullptr);
}

TEST_P(Put, BytesLandWhereTheyWereAimedAndNowhereElse) {
  std::mt19937_64 random(seed);
  constexpr std::size_t region_bytes = 70'001;
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = region_bytes, .signals = 1});
  std::vector<std::byte> expected(region_bytes);
  for (std::uint64_t round = 1; round <= 300; ++round) {
    const std::size_t bytes = random_below(random, round % 10 == 0 ? 60'000 : 200);
    const std::size_t offset = random_below(random, region_bytes - bytes + 1);
    const auto source = random_bytes(random, bytes + 3);
    const std::byte* unaligned = source.data() + random_below(random, 4);
    ASSERT_TRUE(put(*pair.a, unaligned, bytes, offset, {0, round}));
    std::memcpy(expected.data() + offset, unaligned, bytes);
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
      return signals_of(*pair.b)[0].load(std::memory_order_acquire) == round;
    }));
    ASSERT_TRUE(equal_bytes(region_of(*pair.b), expected.data(), region_bytes)) << round;
  }
}

// The heart of the contract. The receiver looks only when the signal tells it to, and then every
// byte of every put before must be there.
TEST_P(Put, SignalIsSeenAfterTheBytesOfEveryPutBefore) {
  constexpr std::size_t region_bytes = 1 << 20;
  constexpr std::uint64_t rounds = is_sanitized ? 15 : 60;
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = region_bytes, .signals = 2});

  // Both sides derive a round's puts from its number: disjoint, odd sizes, in shuffled order. The
  // last one, which signals, is the longest: a signal that overtakes its own bytes shows.
  struct Part {
    std::size_t offset, bytes;
  };
  const auto parts_of = [](std::uint64_t round) {
    std::mt19937_64 random(seed + round);
    std::vector<Part> parts;
    for (std::size_t at = 0; at < region_bytes;) {
      const std::size_t limit = random_below(random, 8) == 0 ? 200'000 : 3'000;
      const std::size_t bytes = std::min(random_below(random, limit), region_bytes - at);
      parts.push_back({at, bytes});
      at += bytes + random_below(random, 100);
    }
    std::shuffle(parts.begin(), parts.end(), random);
    std::iter_swap(std::ranges::max_element(parts, {}, &Part::bytes), parts.end() - 1);
    return parts;
  };
  const auto content_of = [](std::uint64_t round) {
    std::mt19937_64 random(seed * 7 + round);
    return random_bytes(random, region_bytes);
  };

  std::thread sender([&] {
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      const auto content = content_of(round);
      const auto parts = parts_of(round);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        transport::Signal signal;
        if (i + 1 == parts.size()) signal = {0, round};
        const Part& part = parts[i];
        ASSERT_TRUE(put(*pair.a, content.data() + part.offset, part.bytes, part.offset, signal));
      }
      ASSERT_TRUE(wait_for_signal(*pair.a, 1, round));
    }
  });
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    const auto content = content_of(round);
    EXPECT_TRUE(wait_for_signal(*pair.b, 0, round));
    // The last one first: its bytes have had the least time.
    auto parts = parts_of(round);
    std::ranges::reverse(parts);
    for (const Part& part : parts)
      EXPECT_TRUE(
          equal_bytes(region_of(*pair.b) + part.offset, content.data() + part.offset, part.bytes))
          << "round " << round << ", " << part.bytes << " bytes at " << part.offset;
    EXPECT_TRUE(put(*pair.b, nullptr, 0, 0, {1, round}));
  }
  EXPECT_TRUE(wait_for_completion(*pair.b));
  sender.join();
}

TEST_P(Put, BothDirectionsMoveAtOnce) {
  constexpr std::size_t bytes = 300'007;
  constexpr std::uint64_t rounds = 40;
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = 2 * bytes, .signals = 1});
  const auto run = [&](Connection& connection, std::uint64_t own, std::uint64_t other) {
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      std::mt19937_64 mine(seed + 1000 * own + round);
      std::mt19937_64 theirs(seed + 1000 * other + round);
      const auto sent = random_bytes(mine, bytes);
      const auto expected = random_bytes(theirs, bytes);
      // Two halves of the region in turn: the peer may still read the other one.
      const std::size_t half = round % 2 * bytes;
      ASSERT_TRUE(put(connection, sent.data(), bytes, half, {0, round}));
      ASSERT_TRUE(wait_for_signal(connection, 0, round));
      ASSERT_TRUE(equal_bytes(region_of(connection) + half, expected.data(), bytes)) << round;
      ASSERT_TRUE(wait_for_completion(connection));
    }
  };
  std::thread other([&] { run(*pair.b, 2, 1); });
  run(*pair.a, 1, 2);
  other.join();
}

TEST_P(Put, TensOfMebibytesArriveWhole) {
  std::mt19937_64 random(seed);
  constexpr std::size_t bytes = (40u << 20) + 13;
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = bytes + 5, .signals = 1});
  const auto source = random_bytes(random, bytes);
  std::thread receiver([&] { EXPECT_TRUE(wait_for_signal(*pair.b, 0, 1)); });
  EXPECT_TRUE(put(*pair.a, source.data(), bytes, 5, {0, 1}));
  EXPECT_TRUE(wait_for_completion(*pair.a));
  receiver.join();
  EXPECT_TRUE(equal_bytes(region_of(*pair.b) + 5, source.data(), bytes));
}

TEST_P(Put, OfNoBytesCarriesItsSignal) {
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = 64, .signals = 3});
  ASSERT_TRUE(put(*pair.a, nullptr, 0, 64, {2, 77}));
  ASSERT_TRUE(put(*pair.a, nullptr, 0, 0));
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
    return signals_of(*pair.b)[2].load() == 77 && pair.a->puts_completed() == 2;
  }));
  EXPECT_EQ(pair.a->puts_started(), 2u);
  EXPECT_EQ(signals_of(*pair.b)[0].load(), 0u);
}

TEST_P(Put, OfNoBytesIsAlwaysTakenAndTheLatestValueArrives) {
  constexpr std::uint64_t values = 50'000;
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = 64, .signals = 2});
  // The peer does not move meanwhile.
  for (std::uint64_t value = 1; value <= values; ++value) {
    auto taken = pair.a->try_put(nullptr, 0, 0, {static_cast<int>(value % 2), value});
    ASSERT_TRUE(taken.ok()) << taken.error().describe();
    ASSERT_TRUE(*taken) << "at value " << value;
  }
  std::uint64_t seen = 0;
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
    const std::uint64_t now = signals_of(*pair.b)[0].load(std::memory_order_acquire);
    EXPECT_GE(now, seen);
    seen = now;
    return now == values && signals_of(*pair.b)[1].load() == values - 1;
  }));
}

// Puts of no bytes, which are always taken, and puts that must wait store to one signal in turn.
TEST_P(Put, ASignalOnlyGrowsWhicheverPutsStoreIt) {
  constexpr std::size_t bytes = 16 << 10;
  constexpr std::uint64_t enough = 5'000;
  std::mt19937_64 random(seed);
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = bytes, .signals = 1});
  const auto source = random_bytes(random, bytes);
  std::uint64_t value = 0;
  fill(*pair.a, enough, [&](std::uint64_t) {
    const auto empty = pair.a->try_put(nullptr, 0, 0, {0, ++value});
    EXPECT_TRUE(empty.ok() && *empty);
    return pair.a->try_put(source.data(), bytes, 0, {0, ++value});
  });
  std::uint64_t seen = 0;
  const auto look = [&] {
    EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
    const std::uint64_t now = signals_of(*pair.b)[0].load(std::memory_order_acquire);
    EXPECT_GE(now, seen);
    seen = now;
  };
  ASSERT_TRUE(eventually([&] {
    look();
    const auto taken = pair.a->try_put(source.data(), bytes, 0, {0, value + 1});
    return taken.ok() && *taken;
  }));
  ASSERT_TRUE(eventually([&] {
    look();
    return seen == value + 1 && pair.a->puts_completed() == pair.a->puts_started();
  }));
  for (int looks = 0; looks < 20; ++looks) look();
}

TEST_P(Put, LeavesItsSourceWhenItIsComplete) {
  std::mt19937_64 random(seed);
  constexpr std::size_t bytes = 3'000'001;
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = bytes, .signals = 1});
  const auto original = random_bytes(random, bytes);
  auto source = original;
  std::thread receiver([&] { EXPECT_TRUE(wait_for_signal(*pair.b, 0, 1)); });
  EXPECT_TRUE(put(*pair.a, source.data(), bytes, 0, {0, 1}));
  EXPECT_TRUE(wait_for_completion(*pair.a));
  std::memset(source.data(), 0xee, bytes);
  receiver.join();
  EXPECT_TRUE(equal_bytes(region_of(*pair.b), original.data(), bytes));
}

// The source of each is used for something else as soon as it counts.
TEST_P(Put, SeveralLeaveTheirSourcesAsTheyAreCounted) {
  constexpr std::size_t count = 60, bytes = 200'001;
  std::mt19937_64 random(seed);
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = count * bytes, .signals = 1});
  const auto original = random_bytes(random, count * bytes);
  auto source = original;
  std::size_t reused = 0;
  const auto look = [&] {
    EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
    for (; reused < pair.a->puts_completed(); ++reused)
      std::memset(source.data() + reused * bytes, 0xee, bytes);
  };
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_TRUE(until_taken(*pair.a, [&] {
      // Some at a time are under way.
      if (i % 10 == 0) look();
      auto taken = pair.a->try_put(source.data() + i * bytes, bytes, i * bytes, {0, i + 1});
      if (taken.ok() && !*taken) look();
      return taken;
    }));
  ASSERT_TRUE(eventually([&] {
    look();
    return reused == count && signals_of(*pair.b)[0].load(std::memory_order_acquire) == count;
  }));
  EXPECT_TRUE(equal_bytes(region_of(*pair.b), original.data(), original.size()));
}

// As many as are taken, of which the peer may not have had all when this end goes.
TEST_P(Put, SourcesMayBeFreedAfterAbort) {
  constexpr std::size_t count = 8, bytes = 2u << 20;
  for (const bool destroys : {false, true}) {
    Job job(GetParam(), 2);
    Pair pair(job, {.region_bytes = count * bytes, .signals = 1});
    std::vector<std::byte> source(bytes, std::byte{7});
    std::atomic<bool> ends{false};
    std::thread receiver([&] {
      while (!ends) (void)pair.b->progress();
    });
    for (std::size_t i = 0; i < count; ++i) {
      const auto taken = pair.a->try_put(source.data(), bytes, i * bytes, {});
      EXPECT_TRUE(taken.ok());
    }
    if (destroys)
      pair.a.reset();
    else
      pair.a->abort({Fault::Kind::aborted, 0});
    std::ranges::fill(source, std::byte{9});
    for (int i = 0; i < 200; ++i) {
      if (!destroys) (void)pair.a->progress();
      job.progress();
    }
    ends = true;
    receiver.join();
    const std::byte* there = region_of(*pair.b);
    EXPECT_EQ(std::count(there, there + count * bytes, std::byte{9}), 0);
  }
}

TEST_P(Put, EndsAtTheRegionsLastByte) {
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = 1001, .signals = 1});
  const std::vector<std::byte> source(1002, std::byte{0x5a});
  ASSERT_TRUE(put(*pair.a, source.data(), 1, 1000, {0, 1}));
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
    return signals_of(*pair.b)[0].load(std::memory_order_acquire) == 1;
  }));
  EXPECT_EQ(region_of(*pair.b)[1000], std::byte{0x5a});

  const auto refused = [&](std::size_t bytes, std::size_t offset, transport::Signal signal) {
    const auto taken = pair.a->try_put(source.data(), bytes, offset, signal);
    return !taken.ok() && taken.error().kind == ErrorKind::bug;
  };
  EXPECT_TRUE(refused(2, 1000, {}));
  EXPECT_TRUE(refused(1002, 0, {}));
  EXPECT_TRUE(refused(1, ~std::size_t{0}, {}));
  EXPECT_TRUE(refused(1, 0, {1, 1}));
}

TEST_P(Put, BeforeTheConnectionIsReadyIsABug) {
  Job job(GetParam(), 2);
  auto alone = must(job.connect(0, 1, {.region_bytes = 64, .signals = 1}));
  const auto taken = alone->try_put("x", 1, 0, {});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().kind, ErrorKind::bug);
  std::uint64_t word = 0;
  const auto address = reinterpret_cast<std::uint64_t>(&word);
  const Status read = alone->read_peer(&word, address, sizeof word);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().kind, ErrorKind::bug);
  const auto taken_to = alone->try_put_to({.key = 1, .address = address}, 0, "x", 1, {});
  ASSERT_FALSE(taken_to.ok());
  EXPECT_EQ(taken_to.error().kind, ErrorKind::bug);
  // Nobody has left who has not come yet.
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(alone->check_peer().ok());
}

TEST_P(Put, ManyWaitingPutsAllComeThrough) {
  std::mt19937_64 random(seed);
  constexpr std::size_t count = 5'000;
  constexpr std::size_t stride = 301;
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = count * stride, .signals = 1});
  const auto source = random_bytes(random, count * stride);
  std::thread receiver([&] { EXPECT_TRUE(wait_for_signal(*pair.b, 0, count)); });
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_TRUE(put(*pair.a, source.data() + i * stride, stride, i * stride, {0, i + 1}));
  EXPECT_TRUE(wait_for_completion(*pair.a));
  receiver.join();
  EXPECT_TRUE(equal_bytes(region_of(*pair.b), source.data(), source.size()));
}

// Wires that carry a few bits of a signal's growth carry all of it in the end: it grows by what is
// small in its lowest 8, 16 or 32 bits alone, too.
TEST_P(Put, EveryValueOfASignalArrivesWhole) {
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = 64, .signals = 2});
  const std::uint64_t source = 7;
  for (const std::uint64_t value :
       {1ULL, 31ULL, 32ULL, 64ULL, 255ULL, 512ULL, 65'536ULL, 131'075ULL, (1ULL << 31) + 1,
        (1ULL << 32) - 1, 1ULL << 32, (1ULL << 32) + 1, (1ULL << 40) + 3, 1ULL << 63, ~0ULL - 1,
        ~0ULL}) {
    ASSERT_TRUE(put(*pair.a, &source, sizeof source, 0, {0, value}));
    ASSERT_TRUE(put(*pair.a, nullptr, 0, 0, {1, value}));
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
      return signals_of(*pair.b)[0].load(std::memory_order_acquire) == value &&
             signals_of(*pair.b)[1].load(std::memory_order_acquire) == value;
    })) << value;
  }
}

TEST_P(Put, IsNotTakenWhenTooMuchIsUnderWay) {
  constexpr std::size_t bytes = 16 << 10, enough = 5'000;
  std::mt19937_64 random(seed);
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = bytes, .signals = 2});
  const auto source = random_bytes(random, bytes);
  const std::uint64_t taken = fill(*pair.a, enough, [&](std::uint64_t number) {
    return pair.a->try_put(source.data(), bytes, 0, {0, number});
  });
  ASSERT_GT(taken, 0u);
  ASSERT_TRUE(taken < enough || arrives_unseen(pair, taken));
  const auto empty = pair.a->try_put(nullptr, 0, 0, {1, 1});
  ASSERT_TRUE(empty.ok() && *empty);
  // There is room again once the peer looks.
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
    return signals_of(*pair.b)[1].load(std::memory_order_acquire) == 1;
  }));
  EXPECT_EQ(signals_of(*pair.b)[0].load(), taken);
  EXPECT_TRUE(equal_bytes(region_of(*pair.b), source.data(), bytes));
  ASSERT_TRUE(put(*pair.a, source.data(), 1, 0, {0, taken + 1}));
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(progress_all({pair.a.get(), pair.b.get()}).ok());
    return signals_of(*pair.b)[0].load(std::memory_order_acquire) == taken + 1;
  }));
}

// As much of each as is taken, while the one that they all put to does not look.
TEST_P(Put, OfManyPeersToOneThatDoesNotLookAreNotLost) {
  constexpr int peers = 5;
  constexpr std::size_t most = 1'000, bytes = 50;
  std::mt19937_64 random(seed);
  Job job(GetParam(), peers + 1);
  std::vector<Pair> pairs;  // of each peer with rank 0
  const Geometry geometry{.region_bytes = most * bytes, .signals = 1};
  for (int peer = 1; peer <= peers; ++peer)
    pairs.emplace_back(job, geometry, ConnectionKey{}, peer);
  const auto source = random_bytes(random, most * bytes);
  std::vector<std::uint64_t> taken;
  for (Pair& pair : pairs)
    taken.push_back(fill(*pair.b, most, [&](std::uint64_t number) {
      const std::size_t offset = (number - 1) * bytes;
      return pair.b->try_put(source.data() + offset, bytes, offset, {0, number});
    }));
  ASSERT_TRUE(eventually([&] {
    std::size_t done = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      EXPECT_TRUE(progress_all({pairs[i].a.get(), pairs[i].b.get()}).ok());
      done += signals_of(*pairs[i].a)[0].load(std::memory_order_acquire) == taken[i];
    }
    return done == pairs.size();
  }));
  for (std::size_t i = 0; i < pairs.size(); ++i)
    EXPECT_TRUE(equal_bytes(region_of(*pairs[i].a), source.data(), taken[i] * bytes)) << i;
}

}  // namespace
}  // namespace unisono::test
