// Memory that an end exposes: where the peer's puts land, when they may, and what is refused.

#include <set>

#include "conformance/harness.h"
#include "conformance/wrong_keys.h"
#include "support/sanitized.h"

namespace unisono::test {
namespace {

class Exposed : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, Exposed,
                         testing::ValuesIn(factories_with(&Factory::inside_a_process,
                                                          &Factory::puts_in_place)),
                         factory_name);

class Exposing : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, Exposing, testing::ValuesIn(factories_inside_a_process()),
                         factory_name);

constexpr std::uint64_t seed = 20261125;

Status try_once(Connection& connection, const RemoteMemory& memory, std::size_t offset,
                std::span<const std::byte> source, transport::Signal signal) {
  auto taken = connection.try_put_to(memory, offset, source.data(), source.size(), signal);
  if (!taken.ok()) return taken.take_error();
  return {};
}

TEST_P(Exposing, WhereRegionsAloneAreReachedItSaysSo) {
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = 64, .signals = 1});
  for (Connection* end : {pair.a.get(), pair.b.get()})
    EXPECT_EQ(end->puts_in_place(), GetParam().puts_in_place);
  std::vector<std::byte> memory(64);
  const RemoteMemory exposed = must_expose(*pair.b, memory);
  EXPECT_EQ(exposed.key != 0, pair.a->puts_in_place());
  if (exposed.key != 0) return;
  const auto taken = pair.a->try_put_to(exposed, 0, "x", 1, {});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().kind, ErrorKind::bug);
}

TEST_P(Exposed, BytesLandAtTheirPlaceAndNowhereElse) {
  std::mt19937_64 random(seed);
  constexpr std::size_t bytes = 700'001, margin = 100;
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::vector<std::byte> memory(bytes + 2 * margin, std::byte{0xa5});
  auto expected = memory;
  const RemoteMemory exposed = must_expose(*pair->b, std::span(memory).subspan(margin, bytes));
  for (std::uint64_t round = 1; round <= 100; ++round) {
    const std::size_t part = 1 + random_below(random, round % 10 == 0 ? 600'000 : 3'000);
    const std::size_t offset = random_below(random, bytes - part + 1);
    const auto source = random_bytes(random, part);
    ASSERT_TRUE(put_to(*pair->a, exposed, offset, source.data(), part, {0, round}));
    std::memcpy(expected.data() + margin + offset, source.data(), part);
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(progress_all({pair->a.get(), pair->b.get()}).ok());
      return signals_of(*pair->b)[0].load(std::memory_order_acquire) == round;
    }));
    ASSERT_EQ(memory, expected) << round;
  }
}

// Into the region and two other memories in turn; the last put of a round signals.
TEST_P(Exposed, ASignalIsSeenAfterTheBytesInEveryMemory) {
  constexpr std::size_t stride = 20'000, puts = 12;
  constexpr std::uint64_t rounds = 60;
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::array<std::vector<std::byte>, 2> memory;
  std::array<RemoteMemory, 2> exposed;
  for (std::size_t i = 0; i < 2; ++i) {
    memory[i].resize(puts * stride);
    exposed[i] = must_expose(*pair->b, memory[i]);
  }
  const auto content_of = [](std::uint64_t round) {
    std::mt19937_64 random(seed + round);
    return random_bytes(random, puts * stride);
  };
  const auto bytes_of = [](std::size_t i) { return i % 3 == 2 ? 300 : 1 + i * 1'600; };
  std::thread sender([&] {
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      const auto content = content_of(round);
      for (std::size_t i = 0; i < puts; ++i) {
        transport::Signal signal;
        if (i + 1 == puts) signal = {0, round};
        const std::byte* source = content.data() + i * stride;
        if (i % 3 == 2)
          ASSERT_TRUE(put(*pair->a, source, bytes_of(i), i * 300, signal));
        else
          ASSERT_TRUE(put_to(*pair->a, exposed[i % 3], i * stride, source, bytes_of(i), signal));
      }
      ASSERT_TRUE(wait_for_signal(*pair->a, 1, round));
    }
  });
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    const auto content = content_of(round);
    EXPECT_TRUE(wait_for_signal(*pair->b, 0, round));
    for (std::size_t i = 0; i < puts; ++i) {
      const std::byte* there =
          i % 3 == 2 ? region_of(*pair->b) + i * 300 : memory[i % 3].data() + i * stride;
      EXPECT_TRUE(equal_bytes(there, content.data() + i * stride, bytes_of(i)))
          << "put " << i << " of round " << round;
    }
    EXPECT_TRUE(put(*pair->b, nullptr, 0, 0, {1, round}));
  }
  EXPECT_TRUE(wait_for_completion(*pair->b));
  sender.join();
}

TEST_P(Exposed, APutLeavesItsSourceWhenItIsComplete) {
  std::mt19937_64 random(seed);
  constexpr std::size_t bytes = 3'000'001;
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::vector<std::byte> memory(bytes);
  const RemoteMemory exposed = must_expose(*pair->b, memory);
  const auto original = random_bytes(random, bytes);
  auto source = original;
  std::thread receiver([&] { EXPECT_TRUE(wait_for_signal(*pair->b, 0, 1)); });
  EXPECT_TRUE(put_to(*pair->a, exposed, 0, source.data(), bytes, {0, 1}));
  EXPECT_TRUE(wait_for_completion(*pair->a));
  std::memset(source.data(), 0xee, bytes);
  receiver.join();
  EXPECT_EQ(memory, original);
}

TEST_P(Exposed, ManyWaitingPutsAllComeThrough) {
  std::mt19937_64 random(seed);
  constexpr std::size_t count = 3'000, stride = 301;
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::vector<std::byte> memory(count * stride);
  const RemoteMemory exposed = must_expose(*pair->b, memory);
  const auto source = random_bytes(random, count * stride);
  std::thread receiver([&] { EXPECT_TRUE(wait_for_signal(*pair->b, 0, count)); });
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_TRUE(
        put_to(*pair->a, exposed, i * stride, source.data() + i * stride, stride, {0, i + 1}));
  EXPECT_TRUE(wait_for_completion(*pair->a));
  receiver.join();
  EXPECT_EQ(memory, source);
}

TEST_P(Exposed, PutsAreNotTakenWhenTooMuchIsUnderWay) {
  constexpr std::size_t bytes = 16 << 10, enough = 5'000;
  std::mt19937_64 random(seed);
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::vector<std::byte> memory(bytes);
  const RemoteMemory exposed = must_expose(*pair->b, memory);
  const auto source = random_bytes(random, bytes);
  const std::uint64_t taken = fill(*pair->a, enough, [&](std::uint64_t number) {
    return pair->a->try_put_to(exposed, 0, source.data(), bytes, {0, number});
  });
  ASSERT_GT(taken, 0u);
  ASSERT_TRUE(taken < enough || arrives_unseen(*pair, taken));
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(progress_all({pair->a.get(), pair->b.get()}).ok());
    return signals_of(*pair->b)[0].load(std::memory_order_acquire) == taken;
  }));
  EXPECT_EQ(memory, source);
  EXPECT_TRUE(wait_for_completion(*pair->a));
}

// The owner withdraws in the middle of a put, and may then use the memory for something else.
TEST_P(Exposed, NothingLandsAfterWithdrawal) {
  constexpr std::size_t bytes = 24u << 20;
  const std::vector<std::byte> source(bytes, std::byte{7}), new_use(bytes, std::byte{9});
  for (int round = 0; round < (is_sanitized ? 1 : 4); ++round) {
    Job job(GetParam(), 2);
    auto pair = joined(job);
    std::vector<std::byte> memory(bytes);
    const RemoteMemory exposed = must_expose(*pair->b, memory);
    std::atomic<bool> done{false};
    std::thread putter([&] {
      const Deadline deadline;
      while (!done && !deadline.passed() && try_once(*pair->a, exposed, 0, source, {0, 1}).ok() &&
             pair->a->progress().ok())
        std::this_thread::yield();
    });
    EXPECT_TRUE(eventually([&] {
      (void)pair->b->progress();
      return has_landed(memory.data() + (round + 1) * 1'000);
    }));
    pair->b->withdraw(exposed);
    std::memcpy(memory.data(), new_use.data(), bytes);
    for (int i = 0; i < 200; ++i) {
      (void)pair->b->progress();
      std::this_thread::yield();
    }
    done = true;
    putter.join();
    EXPECT_TRUE(equal_bytes(memory.data(), new_use.data(), bytes));
  }
}

TEST_P(Exposed, MemoryMayBeFreedAfterAbort) {
  constexpr std::size_t bytes = 24u << 20;
  const std::vector<std::byte> source(bytes, std::byte{7});
  for (int round = 0; round < (is_sanitized ? 2 : 8); ++round) {
    const bool destroys = round % 2 == 1;
    Job job(GetParam(), 2);
    auto pair = joined(job);
    auto memory = std::make_unique<std::vector<std::byte>>(bytes);
    const RemoteMemory exposed = must_expose(*pair->b, *memory);
    std::atomic<bool> done{false};
    std::thread putter([&] {
      const Deadline deadline;
      while (!done && !deadline.passed() && try_once(*pair->a, exposed, 0, source, {}).ok() &&
             pair->a->progress().ok())
        std::this_thread::yield();
    });
    EXPECT_TRUE(eventually([&] {
      (void)pair->b->progress();
      return has_landed(memory->data() + 5'000);
    }));
    if (destroys)
      pair->b.reset();
    else
      pair->b->abort({Fault::Kind::aborted, 1});
    const auto look = [&] {
      for (int i = 0; i < 200; ++i) {
        EXPECT_TRUE(destroys || !pair->b->progress().ok());
        job.progress();
        std::this_thread::yield();
      }
    };
    // Neither the rest of what is under way lands, nor what begins later.
    const void* untouched = std::memchr(memory->data(), 0, bytes);
    look();
    EXPECT_TRUE(untouched == nullptr || !has_landed(static_cast<const std::byte*>(untouched)));
    std::memset(memory->data(), 9, bytes);
    look();
    EXPECT_EQ(std::memchr(memory->data(), 7, bytes), nullptr);
    // A sanitizer tells if the put still touches it.
    memory.reset();
    look();
    done = true;
    putter.join();
  }
}

// As many as are taken, of which the owner has not had all when it goes.
TEST_P(Exposed, NoneOfManyPutsLandsAfterAbort) {
  constexpr std::size_t most = 2'000, bytes = 16 << 10;
  const std::vector<std::byte> source(bytes, std::byte{7});
  for (const bool destroys : {false, true}) {
    Job job(GetParam(), 2);
    auto pair = joined(job);
    std::vector<std::byte> memory(most * bytes);
    const RemoteMemory exposed = must_expose(*pair->b, memory);
    fill(*pair->a, most, [&](std::uint64_t number) {
      return pair->a->try_put_to(exposed, (number - 1) * bytes, source.data(), bytes, {});
    });
    EXPECT_TRUE(eventually([&] {
      EXPECT_TRUE(progress_all({pair->a.get(), pair->b.get()}).ok());
      return has_landed(memory.data());
    }));
    if (destroys)
      pair->b.reset();
    else
      pair->b->abort({Fault::Kind::aborted, 1});
    const auto before = memory;
    for (int i = 0; i < 200; ++i) {
      (void)pair->a->progress();
      EXPECT_TRUE(destroys || !pair->b->progress().ok());
      job.progress();
    }
    EXPECT_EQ(memory, before);
  }
}

TEST_P(Exposed, OtherKeysChangeNothingAndAreErrors) {
  for (const WrongKey kind : wrong_keys) {
    SCOPED_TRACE(static_cast<int>(kind));
    Job job(GetParam(), 3);
    std::vector<std::byte> memory(100), own(100);
    const WithWrongKey made = with_wrong_key(job, kind, memory, own);
    Pair& pair = *made.pair;
    const std::vector<std::byte> source(50, std::byte{7});
    const Error told =
        either_error(pair, [&] { return try_once(*pair.a, made.wrong, 10, source, {0, 1}); });
    EXPECT_EQ(told.kind, ErrorKind::peer) << told.describe();
    EXPECT_NE(told.message.find("does not expose to it"), std::string::npos) << told.describe();
    EXPECT_EQ(signals_of(*pair.b)[0].load(), 0u);
    EXPECT_EQ(std::ranges::count(memory, std::byte{0}), 100);
    EXPECT_EQ(std::ranges::count(own, std::byte{0}), 100);
  }
}

TEST_P(Exposed, PutsEndAtTheLastByte) {
  struct Place {
    std::size_t offset, bytes;
  };
  for (const Place past : {Place{1000, 2}, Place{0, 1002}, Place{1001, 1},
                           Place{~std::size_t{0}, 1}, Place{~std::size_t{0} - 4, 10}}) {
    Job job(GetParam(), 2);
    auto pair = joined(job);
    std::vector<std::byte> memory(1101);
    const RemoteMemory exposed = must_expose(*pair->b, std::span(memory).subspan(50, 1001));
    const std::vector<std::byte> source(1002, std::byte{0x5a});
    ASSERT_TRUE(put_to(*pair->a, exposed, 1000, source.data(), 1, {0, 1}));
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(progress_all({pair->a.get(), pair->b.get()}).ok());
      return signals_of(*pair->b)[0].load(std::memory_order_acquire) == 1;
    }));
    EXPECT_EQ(memory[1050], std::byte{0x5a});
    memory[1050] = std::byte{0};
    const Error told = either_error(*pair, [&] {
      return try_once(*pair->a, exposed, past.offset, std::span(source).first(past.bytes), {0, 2});
    });
    EXPECT_EQ(told.kind, ErrorKind::peer) << told.describe();
    EXPECT_NE(told.message.find("which has 1001 bytes"), std::string::npos) << told.describe();
    EXPECT_EQ(signals_of(*pair->b)[0].load(), 1u);
    EXPECT_EQ(std::ranges::count(memory, std::byte{0}), 1101);
  }
}

TEST_P(Exposed, ThereIsABoundAndWithdrawalMakesRoom) {
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::vector<std::byte> memory(100);
  std::vector<RemoteMemory> exposed;
  for (std::size_t i = 0; i < Connection::most_exposed; ++i)
    exposed.push_back(must_expose(*pair->b, memory));
  const auto refused = pair->b->expose(memory.data(), memory.size());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::misuse);
  pair->b->withdraw(exposed[5]);
  // No key is given again.
  std::set<std::uint64_t> keys;
  for (const RemoteMemory& one : exposed) keys.insert(one.key);
  RemoteMemory again;
  for (int round = 0; round < 200; ++round) {
    pair->b->withdraw(again);
    again = must_expose(*pair->b, memory);
    EXPECT_TRUE(keys.insert(again.key).second) << again.key;
  }
  const std::vector<std::byte> source(100, std::byte{3});
  ASSERT_TRUE(put_to(*pair->a, again, 0, source.data(), 100, {0, 1}));
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(progress_all({pair->a.get(), pair->b.get()}).ok());
    return signals_of(*pair->b)[0].load(std::memory_order_acquire) == 1;
  }));
  EXPECT_EQ(memory, source);
}

}  // namespace
}  // namespace unisono::test
