// Gets from memory that the peer exposes: what they bring, when the memory may be used for
// something else, and what is refused.

#include "conformance/harness.h"
#include "conformance/wrong_keys.h"
#include "support/sanitized.h"

namespace unisono::test {
namespace {

class Get : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, Get,
                         testing::ValuesIn(factories_with(&Factory::inside_a_process,
                                                          &Factory::gets)),
                         factory_name);

class Getting : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, Getting, testing::ValuesIn(factories_inside_a_process()),
                         factory_name);

constexpr std::uint64_t seed = 20261126;

Status try_once(Connection& connection, const RemoteMemory& memory, std::size_t offset,
                std::span<std::byte> destination) {
  auto taken = connection.try_get(memory, offset, destination.data(), destination.size());
  if (!taken.ok()) return taken.take_error();
  return {};
}

// Both ends look until `done` says so.
template <class Done>
testing::AssertionResult look_until(Pair& pair, Done done) {
  Status status;
  const bool in_time = eventually([&] {
    status = progress_all({pair.a.get(), pair.b.get()});
    return !status.ok() || done();
  });
  if (!status.ok()) return testing::AssertionFailure() << status.error().describe();
  return in_time ? testing::AssertionSuccess() : testing::AssertionFailure() << "not in time";
}

testing::AssertionResult get(Pair& pair, const RemoteMemory& memory, std::size_t offset,
                             std::span<std::byte> destination) {
  Status status;
  bool is_taken = false;
  auto looked = look_until(pair, [&] {
    auto taken = pair.a->try_get(memory, offset, destination.data(), destination.size());
    is_taken = taken.ok() && *taken;
    if (!taken.ok()) status = taken.take_error();
    return is_taken || !status.ok();
  });
  if (!status.ok()) return testing::AssertionFailure() << status.error().describe();
  return looked;
}

testing::AssertionResult wait_for_gets(Pair& pair) {
  return look_until(pair, [&] { return pair.a->gets_completed() == pair.a->gets_started(); });
}

TEST_P(Getting, WhereThereIsNoneItSaysSo) {
  Job job(GetParam(), 2);
  Pair pair(job, {.region_bytes = 64, .signals = 1});
  for (Connection* end : {pair.a.get(), pair.b.get()}) EXPECT_EQ(end->can_get(), GetParam().gets);
  if (pair.a->can_get()) return;
  std::vector<std::byte> memory(64);
  const auto taken = pair.a->try_get(must_expose(*pair.b, memory), 0, memory.data(), 1);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().kind, ErrorKind::bug);
}

TEST_P(Getting, BeforeTheConnectionIsReadyAndOfNothingIsABug) {
  Job job(GetParam(), 2);
  std::array<std::byte, 4> memory{};
  const auto alone = must(job.connect(0, 1, {.region_bytes = 64, .signals = 1}, {.channel = 4}));
  const auto early = alone->try_get({.key = 1, .address = 1}, 0, memory.data(), memory.size());
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().kind, ErrorKind::bug);
  Pair pair(job, {.region_bytes = 64, .signals = 1});
  const auto of_nothing = pair.a->try_get({}, 0, memory.data(), memory.size());
  ASSERT_FALSE(of_nothing.ok());
  EXPECT_EQ(of_nothing.error().kind, ErrorKind::bug);
}

// Each round has other contents, sizes and alignments at both ends.
TEST_P(Get, BringsTheBytesOfItsPlaceAndTouchesNothingElse) {
  std::mt19937_64 random(seed);
  constexpr std::size_t bytes = 700'001, margin = 100;
  constexpr std::uint64_t rounds = is_sanitized ? 30 : 100;
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::vector<std::byte> memory(bytes);
  const RemoteMemory exposed = must_expose(*pair->b, memory);
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    const auto before = random_bytes(random, bytes);
    std::memcpy(memory.data(), before.data(), bytes);
    const std::size_t part = 1 + random_below(random, round % 10 == 0 ? 600'000 : 3'000);
    const std::size_t offset = random_below(random, bytes - part + 1);
    const std::size_t at = random_below(random, margin);
    std::vector<std::byte> destination(part + 2 * margin, std::byte{0xa5});
    auto expected = destination;
    std::memcpy(expected.data() + at, memory.data() + offset, part);
    ASSERT_TRUE(get(*pair, exposed, offset, std::span(destination).subspan(at, part)));
    ASSERT_TRUE(wait_for_gets(*pair));
    ASSERT_EQ(destination, expected) << round;
    ASSERT_EQ(memory, before) << round;
    ASSERT_EQ(pair->a->gets_started(), round);
    ASSERT_EQ(pair->b->gets_started(), 0u);
  }
}

// Neither the owner's memory as it is before the get, nor as it is after its completion.
TEST_P(Get, ReadsBetweenItsStartAndItsCompletionAlone) {
  constexpr std::size_t bytes = 100'001;
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::vector<std::byte> memory(bytes, std::byte{1});
  const RemoteMemory exposed = must_expose(*pair->b, memory);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> destination(bytes);
    std::ranges::fill(memory, std::byte{2});
    ASSERT_TRUE(get(*pair, exposed, 0, destination));
    ASSERT_TRUE(wait_for_gets(*pair));
    std::ranges::fill(memory, std::byte{3});
    for (int looks = 0; looks < 20; ++looks)
      ASSERT_TRUE(progress_all({pair->a.get(), pair->b.get()}).ok());
    ASSERT_EQ(std::ranges::count(destination, std::byte{2}), static_cast<std::ptrdiff_t>(bytes));
  }
}

// Long ones, short ones and those of no bytes: what counts as complete is there.
TEST_P(Get, ManyAtOnceCompleteInOrder) {
  std::mt19937_64 random(seed);
  constexpr std::size_t count = 3'000;
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::vector<std::size_t> begins{0};
  for (std::size_t i = 0; i < count; ++i)
    begins.push_back(begins.back() +
                     (i % 7 == 3 ? 0 : 1 + random_below(random, i % 100 == 0 ? 400'000 : 2'000)));
  auto memory = random_bytes(random, begins.back());
  std::vector<std::byte> destination(memory.size());
  const RemoteMemory exposed = must_expose(*pair->b, memory);
  std::atomic<bool> done{false};
  std::thread owner([&] {
    while (!done) {
      EXPECT_TRUE(pair->b->progress().ok());
      std::this_thread::yield();
    }
  });
  std::size_t seen = 0;
  const auto look = [&] {
    for (const std::uint64_t completed = pair->a->gets_completed(); seen < completed; ++seen)
      EXPECT_TRUE(equal_bytes(destination.data() + begins[seen], memory.data() + begins[seen],
                              begins[seen + 1] - begins[seen]))
          << "get " << seen;
  };
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_TRUE(until_taken(*pair->a, [&] {
      look();
      return pair->a->try_get(exposed, begins[i], destination.data() + begins[i],
                              begins[i + 1] - begins[i]);
    }));
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(pair->a->progress().ok());
    look();
    return seen == count;
  }));
  done = true;
  owner.join();
  EXPECT_EQ(destination, memory);
}

TEST_P(Get, WaitsWhenTooManyAreUnderWay) {
  constexpr std::size_t bytes = 10'000, enough = 10'000;
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::mt19937_64 random(seed);
  auto memory = random_bytes(random, bytes);
  std::vector<std::byte> destination(bytes);
  const RemoteMemory exposed = must_expose(*pair->b, memory);
  bool is_full = false;
  for (std::size_t i = 0; i < enough && !is_full; ++i) {
    const auto taken = pair->a->try_get(exposed, 0, destination.data(), bytes);
    ASSERT_TRUE(taken.ok()) << taken.error().describe();
    is_full = !*taken;
  }
  EXPECT_TRUE(is_full || pair->a->gets_completed() == enough) << "nothing stops what waits";
  const std::uint64_t started = pair->a->gets_started();
  const auto empty = pair->a->try_get(exposed, 0, nullptr, 0);
  ASSERT_TRUE(empty.ok() && *empty);
  EXPECT_EQ(pair->a->gets_started(), started + 1);
  EXPECT_TRUE(wait_for_gets(*pair));
  EXPECT_EQ(destination, memory);
}

// Puts into the region and into exposed memory, and gets, of both ends at once.
TEST_P(Get, GoesAlongWithPutsBothWays) {
  constexpr std::size_t bytes = 150'001;
  constexpr std::uint64_t rounds = 40;
  Job job(GetParam(), 2);
  auto pair = joined(job);
  struct Side {
    std::vector<std::byte> source, landing, destination;
    RemoteMemory exposed_source, exposed_landing;
  };
  std::array<Side, 2> sides;
  std::array<Connection*, 2> ends{pair->a.get(), pair->b.get()};
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < 2; ++i) {
    sides[i].source = random_bytes(random, bytes);
    sides[i].landing.resize(bytes);
    sides[i].destination.resize(bytes);
    sides[i].exposed_source = must_expose(*ends[i], sides[i].source);
    sides[i].exposed_landing = must_expose(*ends[i], sides[i].landing);
  }
  const auto run = [&](std::size_t i) {
    Side &mine = sides[i], &theirs = sides[1 - i];
    Connection& end = *ends[i];
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      std::ranges::fill(mine.destination, std::byte{0});
      ASSERT_TRUE(until_taken(end, [&] {
        return end.try_get(theirs.exposed_source, 0, mine.destination.data(), bytes);
      }));
      ASSERT_TRUE(put_to(end, theirs.exposed_landing, 0, mine.source.data(), bytes));
      ASSERT_TRUE(put(end, mine.source.data(), 1'000, 0, {0, round}));
      ASSERT_TRUE(eventually([&] {
        EXPECT_TRUE(end.progress().ok());
        return end.gets_completed() == round;
      }));
      ASSERT_EQ(mine.destination, theirs.source);
      ASSERT_TRUE(wait_for_signal(end, 0, round));
      ASSERT_EQ(mine.landing, theirs.source);
      std::ranges::fill(mine.landing, std::byte{0});
      // Neither begins the next round before the other has looked at this one.
      ASSERT_TRUE(put(end, nullptr, 0, 0, {1, round}));
      ASSERT_TRUE(wait_for_signal(end, 1, round));
    }
    ASSERT_TRUE(wait_for_completion(end));
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
}

TEST_P(Get, EndsAtTheLastByte) {
  struct Place {
    std::size_t offset, bytes;
  };
  for (const Place past : {Place{1000, 2}, Place{0, 1002}, Place{1001, 1},
                           Place{~std::size_t{0}, 1}, Place{~std::size_t{0} - 4, 10}}) {
    Job job(GetParam(), 2);
    auto pair = joined(job);
    std::vector<std::byte> memory(1101, std::byte{0x5a});
    const RemoteMemory exposed = must_expose(*pair->b, std::span(memory).subspan(50, 1001));
    std::vector<std::byte> destination(1002);
    ASSERT_TRUE(get(*pair, exposed, 1000, std::span(destination).first(1)));
    ASSERT_TRUE(wait_for_gets(*pair));
    EXPECT_EQ(destination[0], std::byte{0x5a});
    destination[0] = std::byte{0};
    const Error told = either_error(*pair, [&] {
      return try_once(*pair->a, exposed, past.offset, std::span(destination).first(past.bytes));
    });
    EXPECT_EQ(told.kind, ErrorKind::peer) << told.describe();
    EXPECT_NE(told.message.find("which has 1001 bytes"), std::string::npos) << told.describe();
    EXPECT_NE(told.message.find(" got "), std::string::npos) << told.describe();
    EXPECT_EQ(std::ranges::count(destination, std::byte{0}), 1002);
    EXPECT_EQ(pair->a->gets_completed(), 1u);
  }
}

TEST_P(Get, OtherKeysBringNothingAndAreErrors) {
  for (const WrongKey kind : wrong_keys) {
    SCOPED_TRACE(static_cast<int>(kind));
    Job job(GetParam(), 3);
    std::vector<std::byte> memory(100, std::byte{7}), own(100, std::byte{7}), destination(50);
    const WithWrongKey made = with_wrong_key(job, kind, memory, own);
    Pair& pair = *made.pair;
    const Error told =
        either_error(pair, [&] { return try_once(*pair.a, made.wrong, 10, destination); });
    EXPECT_EQ(told.kind, ErrorKind::peer) << told.describe();
    EXPECT_NE(told.message.find("does not expose to it"), std::string::npos) << told.describe();
    EXPECT_EQ(std::ranges::count(destination, std::byte{0}), 50);
    EXPECT_EQ(pair.a->gets_completed(), 0u);
  }
}

// Gets of all of `memory` by rank 0, again and again, until `done` or an error.
class Getter {
 public:
  // The end's transport goes on after an error, as a job's does.
  Getter(Connection& end, Transport& transport, const RemoteMemory& memory,
         std::span<std::byte> destination)
      : thread_([this, &end, &transport, memory, destination] {
          const Deadline deadline;
          bool is_ok = true;
          while (!done_ && !deadline.passed()) {
            is_ok = is_ok && try_once(end, memory, 0, destination).ok() && end.progress().ok();
            if (!is_ok) (void)transport.progress();
            begun_ = true;
            std::this_thread::yield();
          }
          begun_ = true;
        }) {}
  ~Getter() { stop(); }
  bool has_begun() const { return begun_; }
  void stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> begun_{false};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// Until the getter has begun, and then for a moment that differs from round to round.
void let_begin(const Getter& getter, Connection& owner, int round) {
  EXPECT_TRUE(eventually([&] {
    (void)owner.progress();
    return getter.has_begun();
  }));
  for (int i = 0; i < 3 * round; ++i) {
    (void)owner.progress();
    std::this_thread::yield();
  }
}

TEST_P(Get, ReadsNothingAfterWithdrawal) {
  constexpr std::size_t bytes = 8u << 20;
  for (int round = 0; round < 6; ++round) {
    Job job(GetParam(), 2);
    auto pair = joined(job);
    std::vector<std::byte> memory(bytes, std::byte{7}), destination(bytes);
    const RemoteMemory exposed = must_expose(*pair->b, memory);
    Getter getter(*pair->a, *job.transports[0], exposed, destination);
    let_begin(getter, *pair->b, round);
    pair->b->withdraw(exposed);
    std::memset(memory.data(), 9, bytes);
    for (int i = 0; i < 200; ++i) {
      (void)pair->b->progress();
      std::this_thread::yield();
    }
    getter.stop();
    EXPECT_EQ(std::memchr(destination.data(), 9, bytes), nullptr);
    pair.reset();  // before its gets' destination
  }
}

TEST_P(Get, MemoryMayBeFreedAfterItsOwnersAbort) {
  constexpr std::size_t bytes = 8u << 20;
  for (const int round : {0, 1, 2, 3}) {
    Job job(GetParam(), 2);
    auto pair = joined(job);
    auto memory = std::make_unique<std::vector<std::byte>>(bytes, std::byte{7});
    std::vector<std::byte> destination(bytes);
    const RemoteMemory exposed = must_expose(*pair->b, *memory);
    Getter getter(*pair->a, *job.transports[0], exposed, destination);
    let_begin(getter, *pair->b, round);
    const bool destroys = round % 2 == 1;
    if (destroys)
      pair->b.reset();
    else
      pair->b->abort({Fault::Kind::aborted, 1});
    // A sanitizer tells if a get still reads it.
    memory.reset();
    for (int i = 0; i < 200 && !destroys; ++i) EXPECT_FALSE(pair->b->progress().ok());
    getter.stop();
    // What is left to be sent of an end that has gone its transport sends.
    const Error told = until_error([&] {
      job.progress();
      if (!destroys) (void)pair->b->progress();
      return pair->a->check_peer();
    });
    EXPECT_EQ(told.kind, ErrorKind::peer) << told.describe();
    EXPECT_EQ(told.peer, 1) << told.describe();
    pair.reset();  // before its gets' destination
  }
}

// The getter gives up in the middle, and may then use the destination for something else.
TEST_P(Get, NothingLandsAfterTheGettersAbort) {
  constexpr std::size_t bytes = 8u << 20;
  for (const std::size_t round : {0, 1, 2, 3, 4, 5}) {
    Job job(GetParam(), 2);
    auto pair = joined(job);
    std::vector<std::byte> memory(bytes, std::byte{7});
    std::vector<std::byte> destination(bytes);
    const RemoteMemory exposed = must_expose(*pair->b, memory);
    std::atomic<bool> done{false};
    std::thread owner([&] {
      const Deadline deadline;
      while (!done && !deadline.passed()) {
        (void)pair->b->progress();
        std::this_thread::yield();
      }
    });
    auto taken = pair->a->try_get(exposed, 0, destination.data(), bytes);
    EXPECT_TRUE(taken.ok() && *taken);
    // Before bytes land, and between the first and the last, unless they land all at once.
    if (round > 1) {
      EXPECT_TRUE(eventually([&] {
        EXPECT_TRUE(pair->a->progress().ok());
        return has_landed(destination.data() + 5'000 * round);
      }));
    }
    const bool destroys = round % 2 == 1;
    if (destroys)
      pair->a.reset();
    else
      pair->a->abort({Fault::Kind::aborted, 0});
    std::memset(destination.data(), 9, bytes);
    for (int i = 0; i < 200; ++i) {
      EXPECT_TRUE(destroys || !pair->a->progress().ok());
      job.progress();
      std::this_thread::yield();
    }
    done = true;
    owner.join();
    // It exposes memory that goes before it does.
    pair->b.reset();
    EXPECT_EQ(destination[0], std::byte{9});
    EXPECT_EQ(std::memcmp(destination.data(), destination.data() + 1, bytes - 1), 0);
  }
}

TEST_P(Get, FromAPeerThatHasLeftNeverCompletesAndIsTold) {
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::vector<std::byte> memory(1'000, std::byte{7}), destination(1'000);
  const RemoteMemory exposed = must_expose(*pair->b, memory);
  pair->b.reset();
  const Error told = until_error([&]() -> Status {
    if (auto status = try_once(*pair->a, exposed, 0, destination); !status.ok()) return status;
    job.progress();
    return pair->a->check_peer();
  });
  EXPECT_EQ(told.kind, ErrorKind::peer) << told.describe();
  EXPECT_EQ(told.peer, 1) << told.describe();
  EXPECT_EQ(std::ranges::count(destination, std::byte{0}), 1'000);
  EXPECT_EQ(pair->a->gets_completed(), 0u);
}

// What was got can be withdrawn at once: no get is under way there any more.
TEST_P(Get, MemoryIsWithdrawnInPeaceWhenGetsAreComplete) {
  constexpr std::size_t bytes = 300'001;
  Job job(GetParam(), 2);
  auto pair = joined(job);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    auto memory = random_bytes(random, bytes);
    std::vector<std::byte> destination(bytes);
    const RemoteMemory exposed = must_expose(*pair->b, memory);
    // A put of the owner's waits meanwhile.
    ASSERT_TRUE(put(*pair->b, memory.data(), 1 << 16, 0));
    ASSERT_TRUE(get(*pair, exposed, 0, destination));
    ASSERT_TRUE(wait_for_gets(*pair));
    pair->b->withdraw(exposed);
    ASSERT_EQ(destination, memory);
    ASSERT_TRUE(
        look_until(*pair, [&] { return pair->b->puts_completed() == pair->b->puts_started(); }));
  }
}

}  // namespace
}  // namespace unisono::test
