// Peers that leave, die or give up: who is told what, and that nobody waits for ever.

#include "conformance/harness.h"

namespace unisono::test {
namespace {

class Faults : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, Faults, testing::ValuesIn(factories_inside_a_process()),
                         factory_name);

class Offered : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, Offered,
                         testing::ValuesIn(factories_with(&Factory::inside_a_process,
                                                          &Factory::reads_peer)),
                         factory_name);

constexpr Geometry small{.region_bytes = 1 << 16, .signals = 2};

Error check_until_error(Connection& connection) {
  return until_error([&] { return connection.check_peer(); });
}

Error progress_until_error(Connection& connection) {
  return until_error([&] { return connection.progress(); });
}

TEST_P(Faults, AbortTellsThePeerWhoIsToBlame) {
  const std::vector<Fault> faults{{Fault::Kind::aborted, 0},
                                  {Fault::Kind::failed, 17},
                                  {Fault::Kind::timed_out, 3},
                                  {Fault::Kind::protocol_violation, 1},
                                  {Fault::Kind::failed, -1}};
  for (const Fault& fault : faults) {
    Job job(GetParam(), 2);
    Pair pair(job, small);
    pair.a->abort(fault);
    const Error told = progress_until_error(*pair.b);
    EXPECT_EQ(told.kind, ErrorKind::peer);
    EXPECT_EQ(told.peer, fault.rank);
    EXPECT_EQ(told.aborted, fault.kind == Fault::Kind::aborted);
    EXPECT_EQ(told.timed_out, fault.kind == Fault::Kind::timed_out);
    EXPECT_NE(told.message.find("rank 0"), std::string::npos) << told.message;
    // And it stays so, at both ends.
    EXPECT_EQ(progress_until_error(*pair.b).peer, fault.rank);
    EXPECT_EQ(progress_until_error(*pair.a).peer, fault.rank);
    EXPECT_EQ(check_until_error(*pair.b).peer, fault.rank);
  }
}

TEST_P(Faults, TheFirstFaultCounts) {
  Job job(GetParam(), 2);
  Pair pair(job, small);
  pair.a->abort({Fault::Kind::failed, 5});
  pair.a->abort({Fault::Kind::aborted, 0});
  EXPECT_EQ(progress_until_error(*pair.b).peer, 5);
}

TEST_P(Faults, AbortFromAnotherThreadReachesAPeerThatWaits) {
  Job job(GetParam(), 2);
  Pair pair(job, small);
  std::atomic<bool> waiting{false};
  std::thread victim([&] {
    // As a collective would: waits for a signal that never comes.
    const Error told = [&] {
      for (;;) {
        waiting = true;
        auto status = pair.a->progress();
        if (!status.ok()) return *status.take_error();
        std::this_thread::yield();
      }
    }();
    EXPECT_EQ(told.peer, 0);
    EXPECT_TRUE(told.aborted);
  });
  EXPECT_TRUE(eventually([&] { return waiting.load(); }));
  pair.a->abort({Fault::Kind::aborted, 0});
  EXPECT_EQ(progress_until_error(*pair.b).peer, 0);
  victim.join();
}

TEST_P(Faults, AbortInTheMiddleOfALargePutIsTold) {
  Job job(GetParam(), 2);
  constexpr std::size_t bytes = 32u << 20;
  Pair pair(job, {.region_bytes = bytes, .signals = 1});
  std::atomic<bool> is_told{false};
  std::thread receiver([&] {
    const Error told = until_error([&] { return pair.b->check_peer(); });
    EXPECT_EQ(told.kind, ErrorKind::peer);
    is_told = true;
  });
  {
    const std::vector<std::byte> source(bytes, std::byte{3});
    const auto taken = pair.a->try_put(source.data(), bytes, 0, {0, 1});
    EXPECT_TRUE(taken.ok());
    pair.a->abort({Fault::Kind::timed_out, 1});
  }
  EXPECT_TRUE(eventually([&] {
    EXPECT_FALSE(pair.a->progress().ok());
    return is_told.load();
  }));
  receiver.join();
}

TEST_P(Faults, APeerThatLeavesIsAnErrorOnlyForWhoWaits) {
  std::mt19937_64 random(11);
  Job job(GetParam(), 2);
  Pair pair(job, small);
  const auto source = random_bytes(random, 50'001);
  ASSERT_TRUE(put(*pair.a, source.data(), source.size(), 7, {0, 1}));
  ASSERT_TRUE(wait_for_completion(*pair.a));
  pair.a.reset();
  // What it put before it left arrives.
  ASSERT_TRUE(eventually([&] {
    job.progress();
    const auto status = pair.b->progress();
    EXPECT_TRUE(status.ok()) << status.error().describe();
    return signals_of(*pair.b)[0].load(std::memory_order_acquire) == 1;
  }));
  EXPECT_TRUE(equal_bytes(region_of(*pair.b) + 7, source.data(), source.size()));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(pair.b->progress().ok());
  // Puts towards it are dropped, without an error and without an end.
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(put(*pair.b, source.data(), source.size(), 0, {0, 1}));
  EXPECT_TRUE(wait_for_completion(*pair.b));
  const Error told = check_until_error(*pair.b);
  EXPECT_EQ(told.kind, ErrorKind::peer);
  EXPECT_EQ(told.peer, 0);
  EXPECT_FALSE(told.aborted);
}

// Who has not looked whether its peer is there has not had what that left.
TEST_P(Faults, APeerThatLeftBeforeThisEndWasReadyIsNoErrorYet) {
  Job job(GetParam(), 2);
  auto a = must(job.connect(0, 1, small));
  const auto b = must(job.connect(1, 0, small));
  ASSERT_TRUE(eventually([&] {
    job.progress();
    return is_ready(*a);
  }));
  ASSERT_TRUE(put(*a, "last", 4, 0, {0, 1}));
  ASSERT_TRUE(wait_for_completion(*a));
  a.reset();
  for (int i = 0; i < 5; ++i) {
    job.progress();
    const Status status = b->check_peer();
    ASSERT_TRUE(status.ok()) << status.error().describe();
  }
  ASSERT_TRUE(eventually([&] {
    job.progress();
    return is_ready(*b);
  }));
  EXPECT_TRUE(wait_for_signal(*b, 0, 1));
  EXPECT_TRUE(equal_bytes(region_of(*b), "last", 4));
}

TEST_P(Faults, ALeavingPeerIsToldOnlyAfterALookForWhatItLeft) {
  Job job(GetParam(), 2);
  Pair pair(job, small);
  ASSERT_TRUE(put(*pair.a, "last", 4, 0, {0, 1}));
  ASSERT_TRUE(wait_for_completion(*pair.a));
  pair.a.reset();
  ASSERT_TRUE(eventually([&] {
    job.progress();
    const bool arrived_before = signals_of(*pair.b)[0].load(std::memory_order_acquire) == 1;
    const bool ok = pair.b->check_peer().ok();
    // An error before the signal could be looked at would lose the message.
    EXPECT_TRUE(ok || arrived_before);
    return !ok;
  }));
}

// Its memory goes, too, while the peer's bytes are on their way there.
TEST_P(Faults, AnEndThatGoesInTheMiddleOfPutsHarmsNoOther) {
  constexpr std::size_t bytes = 8u << 20;
  Job job(GetParam(), 2);
  Pair other(job, small, {.channel = 100});
  const std::vector<std::byte> source(bytes, std::byte{9});
  for (std::uint32_t round = 0; round < 4; ++round) {
    Pair doomed(job, {.region_bytes = bytes, .signals = 1}, {.channel = round});
    const auto taken = doomed.a->try_put(source.data(), bytes, 0, {0, 1});
    ASSERT_TRUE(taken.ok() && *taken);
    for (std::uint32_t looks = 0; looks < 2 * round; ++looks)
      ASSERT_TRUE(progress_all({doomed.a.get(), doomed.b.get()}).ok());
    doomed.b.reset();
    const std::uint64_t value = round + 1;
    ASSERT_TRUE(put(*other.a, &value, sizeof value, 8 * round, {1, value}));
    ASSERT_TRUE(eventually([&] {
      job.progress();
      EXPECT_TRUE(progress_all({doomed.a.get(), other.a.get(), other.b.get()}).ok());
      return signals_of(*other.b)[1].load(std::memory_order_acquire) == value &&
             doomed.a->puts_completed() == doomed.a->puts_started();
    }));
    EXPECT_TRUE(equal_bytes(region_of(*other.b) + 8 * round, &value, sizeof value));
  }
}

TEST_P(Faults, OfferedMemoryIsReadWhereItSaysSo) {
  Job job(GetParam(), 2);
  Pair pair(job, small);
  const std::uint64_t offered = 7;
  for (Connection* end : {pair.a.get(), pair.b.get()}) {
    EXPECT_EQ(end->can_read_peer(), GetParam().reads_peer);
    std::uint64_t got = 0;
    const Status status =
        end->read_peer(&got, reinterpret_cast<std::uint64_t>(&offered), sizeof got);
    EXPECT_EQ(status.ok(), GetParam().reads_peer);
    EXPECT_TRUE(status.ok() || status.error().kind == ErrorKind::bug);
  }
}

TEST_P(Offered, MemoryIsReadWhole) {
  std::mt19937_64 random(12);
  Job job(GetParam(), 2);
  Pair pair(job, small);
  const auto source = random_bytes(random, 5'000'003);
  for (int round = 0; round < 50; ++round) {
    const std::size_t bytes = random_below(random, round % 5 == 0 ? 4'000'000 : 5'000);
    const std::size_t offset = random_below(random, source.size() - bytes);
    std::vector<std::byte> got(bytes + 1, std::byte{0xaa});
    const auto status = pair.b->read_peer(
        got.data(), reinterpret_cast<std::uint64_t>(source.data() + offset), bytes);
    ASSERT_TRUE(status.ok()) << status.error().describe();
    ASSERT_TRUE(equal_bytes(got.data(), source.data() + offset, bytes));
    ASSERT_EQ(got[bytes], std::byte{0xaa});
  }
}

TEST_P(Offered, MemoryMayBeFreedAfterAbort) {
  for (const bool destroy : {false, true}) {
    Job job(GetParam(), 2);
    Pair pair(job, small);
    auto offered = std::make_unique<std::vector<std::byte>>(24u << 20, std::byte{7});
    const auto address = reinterpret_cast<std::uint64_t>(offered->data());
    const std::size_t bytes = offered->size();
    std::atomic<int> copies{0};
    std::thread copier([&] {
      std::vector<std::byte> own(bytes);
      const Deadline deadline;
      while (pair.b->read_peer(own.data(), address, bytes).ok() && !deadline.passed()) ++copies;
      EXPECT_FALSE(deadline.passed());
    });
    EXPECT_TRUE(eventually([&] { return copies > 2; }));
    if (destroy)
      pair.a.reset();
    else
      pair.a->abort({Fault::Kind::aborted, 0});
    // A sanitizer tells if the copier still touches it.
    offered.reset();
    copier.join();
  }
}

}  // namespace
}  // namespace unisono::test
