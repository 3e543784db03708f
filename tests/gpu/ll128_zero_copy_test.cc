// Messages that LL128 kernels store directly into the receiver's buffer, among others that go
// through slots.
#include <gtest/gtest.h>

#include "support/carried.h"
#include "support/emulated_device.h"

#include <random>

#include "engine/gpu/ll128_all_pairs.h"
#include "engine/gpu/messages.h"
#include "gpu/message_groups.h"
#include "gpu/runs.h"

namespace unisono::test {
namespace {

// Every message may be zero-copy, so that a few bytes cover all cases.
GpuCluster::Options everything_zero_copy(std::function<bool(int, int)> sees) {
  return {.engine = {.slot_bytes = 4096, .zero_copy_min_bytes = 1}, .sees = std::move(sees)};
}

class GpuLl128ZeroCopy : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  }
  std::mt19937_64 random_{test_seed()};
};

// Who reaches whom changes from call to call.
TEST_F(GpuLl128ZeroCopy, EveryPlanIsRightWhoeverReachesWhom) {
  constexpr int ranks = 3;
  GpuCluster cluster(ranks, everything_zero_copy([&](int, int) { return random_() % 2 == 0; }));
  for (const algorithm::Entry& entry : algorithm::entries())
    for (int round = 0; round < 2; ++round) {
      const auto count = static_cast<std::int64_t>(1 + random_() % 20'000);
      const bool can_be_in_place =
          entry.collective != Collective::all_to_all_v && entry.collective != Collective::barrier;
      auto run = run_of(entry, problem_of(entry, ranks, count, random_), Protocol::simple, 2,
                        can_be_in_place && round == 1, random_());
      run.calls = 4;
      run.type = round == 0 ? DataType::uint8 : DataType::bfloat16;
      run.is_aligned = random_() % 2 == 0;
      if (!serves(entry, run)) continue;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
      if (HasFailure()) return;
    }
}

class GpuLl128ZeroCopyPlans : public GpuLl128ZeroCopy, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuLl128ZeroCopyPlans, testing::Values(3, 4, 5));

TEST_P(GpuLl128ZeroCopyPlans, EveryPlanIsRightWhoeverReachesWhom) {
  const int ranks = GetParam();
  GpuCluster cluster(ranks, everything_zero_copy([&](int, int) { return random_() % 2 == 0; }));
  for (const algorithm::Entry& entry : entries_by_exchange(ranks))
    for (int round = 0; round < 6; ++round) {
      if (ll128_hops(entry, ranks) == 0) continue;
      const auto count = static_cast<std::int64_t>(1 + random_() % (round == 0 ? 200'000 : 20'000));
      auto run = run_of(entry, problem_of(entry, ranks, count, random_), Protocol::ll128, 1,
                        random_() % 2 == 0, random_());
      run.calls = 3;
      run.type = random_() % 2 == 0 ? DataType::uint8 : DataType::bfloat16;
      run.is_aligned = random_() % 3 != 0;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
      if (HasFailure()) return;
    }
}

// The emulated devices' interleaving follows from the seed.
TEST_F(GpuLl128ZeroCopy, ASeedReplays) {
  const EmulatedDevice* const emulated = EmulatedDevice::find();
  if (emulated == nullptr) GTEST_SKIP() << "real GPUs have no seed";
  const auto trace_of = [&](std::uint64_t seed) {
    std::mt19937_64 random(7);
    emulated->seed(seed);
    GpuCluster cluster(3, everything_zero_copy([&](int, int) { return random() % 2 == 0; }));
    for (const algorithm::Entry& entry : entries_by_exchange(3)) {
      if (ll128_hops(entry, 3) != 1) continue;
      auto run = run_of(entry, problem_of(entry, 3, 1'000, random), Protocol::ll128, 1, false, 1);
      run.calls = 2;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
    }
    return emulated->trace();
  };
  const std::uint64_t seed = random_();
  const std::uint64_t first = trace_of(seed);
  EXPECT_EQ(trace_of(seed), first);
  EXPECT_NE(trace_of(seed + 1), first);
}

TEST_F(GpuLl128ZeroCopy, NoSlotIsUsedWhereAllReachAll) {
  for (const auto& [collective, name] : {std::pair{Collective::all_gather, "direct"},
                                         {Collective::all_gather, "ring"},
                                         {Collective::all_to_all, "direct"},
                                         {Collective::all_to_all_v, "direct"},
                                         {Collective::broadcast, "ring"}}) {
    for (const bool reaches : {true, false}) {
      GpuCluster cluster(3, everything_zero_copy([&](int, int) { return reaches; }));
      const algorithm::Entry& entry = **algorithm::find(collective, name);
      // Of whole units, so that all blocks are aligned.
      auto problem = problem_of(entry, 3, 16 * 3000, random_);
      for (auto& row : problem.counts)
        for (auto& count : row) count = count / 16 * 16 + 16;
      auto run = run_of(entry, problem, Protocol::simple, 2, false, random_());
      run.type = DataType::uint8;
      run.is_aligned = true;
      run.calls = 3;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
      bool used = false;
      for (int rank = 0; rank < 3; ++rank) used |= cluster.has_used_slots(rank);
      EXPECT_EQ(used, !reaches) << describe(run);
    }
  }
}

TEST_F(GpuLl128ZeroCopy, GraphsStayZeroCopyAsCaptured) {
  constexpr int ranks = 2;
  GpuCluster cluster(ranks, everything_zero_copy([](int rank, int) { return rank == 0; }));
  for (const auto& [collective, name] : {std::pair{Collective::all_gather, "direct"},
                                         {Collective::all_reduce, "two_shot"},
                                         {Collective::broadcast, "ring"}}) {
    const algorithm::Entry& entry = **algorithm::find(collective, name);
    auto run = run_of(entry, problem_of(entry, ranks, 30'001, random_), Protocol::simple, 2, false,
                      random_());
    run.calls = 6;
    run.is_graph = true;
    EXPECT_EQ(cluster.run(run), "") << describe(run);
  }
}

// Groups of messages of any size between two ranks, some of which the sender reaches.
TEST_F(GpuLl128ZeroCopy, GroupsOfMessagesAreRightWhoeverReachesWhom) {
  GpuCluster cluster(2, everything_zero_copy([&](int, int) { return random_() % 2 == 0; }));
  MessageGroups groups(cluster, random_, std::size_t{4} << 20);
  const auto bytes_of = [&](int message) { return random_() % (message % 2 == 0 ? 600'000 : 900); };
  for (int call = 0; call < 20; ++call)
    ASSERT_EQ(groups.run({.messages = 6, .bytes_of = bytes_of}), "") << "call " << call;
}

// The receiver never comes: the sender says what it waits for.
TEST_F(GpuLl128ZeroCopy, ASenderSaysThatItWaitsForTheDestination) {
  GpuCluster cluster(2, everything_zero_copy([](int, int) { return true; }));
  auto memory = sys::cuda::Memory::allocate(cluster.engine(0).shared_device(), 4096);
  ASSERT_TRUE(memory.ok());
  const auto group = [&](int rank) {
    auto* data = reinterpret_cast<void*>(memory->address());
    return Message{
        .is_send = rank == 0, .send_data = data, .recv_data = data, .count = 64, .peer = 1 - rank};
  };
  for (const bool receiver_comes : {true, false}) {
    GpuCluster::Executions executions;
    std::vector<engine::Arguments> arguments(2);
    for (int rank = 0; rank < 2; ++rank) {
      const Message message = group(rank);
      executions.push_back(std::move(engine::gpu::make_messages(std::span(&message, 1), rank, 2, {},
                                                                cluster.resources(rank)))
                               .value());
      arguments[static_cast<std::size_t>(rank)] = {
          .options = {.timeout = std::chrono::milliseconds(100),
                      .stream = cluster.stream(rank).handle()}};
    }
    ASSERT_TRUE(
        cluster.launch(executions, arguments, receiver_comes ? std::vector{0, 1} : std::vector{0})
            .ok());
    ASSERT_TRUE(cluster.stream(0).synchronize().ok());
    ASSERT_TRUE(cluster.stream(1).synchronize().ok());
  }
  const Status failure = cluster.engine(0).failure();
  ASSERT_FALSE(failure.ok());
  EXPECT_NE(failure.error().message.find(
                "destination address 2 from rank 1 (1 have arrived) on channel 8192"),
            std::string::npos)
      << failure.error().message;
}

}  // namespace
}  // namespace unisono::test
