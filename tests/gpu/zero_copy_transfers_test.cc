// Zero-copy messages among others that go through slots. Skipped,
// and says so, where there is no GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/fast_clock.h"
#include "engine/gpu/copies.h"
#include "engine/gpu/copy_program.h"
#include "gpu/runs.h"
#include "support/carried.h"
#include "support/emulated_device.h"
#include "support/eventually.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono::test {
namespace {

using std::chrono::milliseconds;
using sys::cuda::Memory;

// Every message may be zero-copy; which peers are mapped changes from call to call.
class GpuZeroCopyTransfers : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  }
  static GpuCluster::Options everything_zero_copy(std::function<bool(int, int)> sees) {
    return {.engine = {.copies = {.slots = 2, .slot_bytes = 4096, .zero_copy_min_bytes = 1}},
            .sees = std::move(sees)};
  }
  static bool is_zero_copy_size(const GpuCluster::Run& run) {
    return zero_copy_hops(*run.entry, run.request.placement.ranks()) > 0;
  }
  std::mt19937_64 random_{test_seed()};
};

TEST_F(GpuZeroCopyTransfers, EveryPlanIsRightWhoeverReachesWhom) {
  for (int ranks : {2, 4}) {
    GpuCluster cluster(ranks, everything_zero_copy([&](int, int) { return random_() % 3 != 0; }));
    int runs = 0;
    for (const algorithm::Entry& entry : entries_by_exchange(ranks))
      for (std::int64_t count : {3, 4099, 61'003}) {
        auto run = copies_of(entry, ranks, count, random_);
        if (entry.name.find("hierarchical") != std::string_view::npos || !copies_have_order(run, 2))
          continue;
        if (!is_zero_copy_size(run)) continue;
        run.type = static_cast<DataType>(random_() % data_type_count);
        run.calls = 4;
        EXPECT_EQ(cluster.run(run), "") << describe(run);
        if (HasFailure()) return;
        ++runs;
      }
    EXPECT_GE(runs, 18);
  }
}

TEST_F(GpuZeroCopyTransfers, NoSlotIsUsedWhereAllReachAll) {
  for (const auto& [collective, name] : {std::pair{Collective::all_gather, "direct"},
                                         {Collective::all_to_all, "direct"},
                                         {Collective::all_to_all_v, "direct"},
                                         {Collective::broadcast, "two_shot"},
                                         {Collective::broadcast, "knomial4"},
                                         {Collective::gather, "knomial4"},
                                         {Collective::scatter, "knomial4"}})
    for (const bool reaches : {true, false}) {
      auto run = copies_of(**algorithm::find(collective, name), 3, 50'000, random_);
      run.request.in_place = false;
      run.calls = 3;
      // A sender waits 2 ms for a receiver that comes late, which any may on a busy machine.
      const int most_tries = reaches ? 50 : 1;
      bool used = true;
      for (int tries = 0; used && tries < most_tries; ++tries) {
        GpuCluster cluster(3, everything_zero_copy([&](int, int) { return reaches; }));
        EXPECT_EQ(cluster.run(run), "") << describe(run);
        used = false;
        for (int rank = 0; rank < 3; ++rank) used |= cluster.has_used_slots(rank);
      }
      EXPECT_EQ(used, !reaches) << describe(run);
    }
}

TEST_F(GpuZeroCopyTransfers, GraphsStayZeroCopyAsCaptured) {
  GpuCluster cluster(3, everything_zero_copy([](int rank, int) { return rank != 1; }));
  for (const auto& [collective, name] : {std::pair{Collective::all_gather, "direct"},
                                         {Collective::all_to_all, "direct"},
                                         {Collective::broadcast, "two_shot"},
                                         {Collective::gather, "knomial4"},
                                         {Collective::scatter, "knomial4"}}) {
    auto run = copies_of(**algorithm::find(collective, name), 3, 33'333, random_);
    run.calls = 6;
    run.is_graph = true;
    EXPECT_EQ(cluster.run(run), "") << describe(run);
  }
}

// What a rank is to send is saved before what it receives comes in its place.
TEST_F(GpuZeroCopyTransfers, LargeBlocksAreExchangedInPlace) {
  GpuCluster cluster(2, everything_zero_copy([](int rank, int) { return rank == 0; }));
  constexpr std::int64_t count = 1'300'003;
  auto run = copies_of(**algorithm::find(Collective::all_to_all, "direct"), 2, count, random_);
  run.request.in_place = true;
  run.type = DataType::uint8;
  run.calls = 4;
  EXPECT_EQ(cluster.run(run), "") << describe(run);
}

// Rank 0 captures, rank 1 does not.
TEST_F(GpuZeroCopyTransfers, ACallThatNotAllRanksCaptureIsRefused) {
  GpuCluster cluster(2, everything_zero_copy([](int, int) { return true; }));
  constexpr std::int64_t count = 1000;
  auto run = copies_of(**algorithm::find(Collective::all_gather, "direct"), 2, count, random_);
  run.request.in_place = false;
  auto executions = std::move(cluster.make_executions(run)).value();
  std::vector<Memory> memory;
  std::vector<engine::Arguments> arguments(2);
  for (int rank = 0; rank < 2; ++rank) {
    memory.push_back(Memory::allocate(cluster.engine(rank).shared_device(), 3 * count).value());
    auto* data = reinterpret_cast<std::byte*>(memory.back().address());
    arguments[static_cast<std::size_t>(rank)] = {
        .input = data,
        .output = data + count,
        .count = count,
        .type = DataType::uint8,
        .options = {.timeout = std::chrono::seconds(120), .stream = cluster.stream(rank).handle()}};
  }
  ASSERT_TRUE(cluster.launch(executions, arguments, {0, 1}).ok());
  ASSERT_TRUE(cluster.synchronize().ok());
  const sys::cuda::Device& device = cluster.stream(0).device();
  const sys::cuda::Current current(device);
  constexpr int thread_local_mode = 1;
  ASSERT_EQ(device.driver().capture_begin(cluster.stream(0).handle(), thread_local_mode),
            sys::cuda::driver_success);
  const Status refused = cluster.launch(executions, arguments, {0, 1});
  sys::cuda::GraphHandle* graph = nullptr;
  ASSERT_EQ(device.driver().capture_end(cluster.stream(0).handle(), &graph),
            sys::cuda::driver_success);
  device.driver().graph_destroy(graph);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::misuse);
  EXPECT_NE(refused.error().message.find("all ranks must capture it, or none"), std::string::npos)
      << refused.error().message;
}

// The receiver's host has made the call that its device does not come to.
TEST_F(GpuZeroCopyTransfers, ASenderSaysThatItWaitsForTheDestination) {
  GpuCluster cluster(2, everything_zero_copy([](int, int) { return true; }));
  const sys::cuda::Device& device = cluster.engine(0).device();
  const auto memory = Memory::allocate(cluster.engine(0).shared_device(), 64).value();
  auto* data = reinterpret_cast<void*>(memory.address());
  std::vector<engine::Arguments> arguments(2);
  // A group is made for one call.
  const auto make_group = [&](std::int64_t timeout_ns) {
    GpuCluster::Executions executions;
    for (int rank = 0; rank < 2; ++rank) {
      const Message message{.is_send = rank == 0,
                            .send_data = data,
                            .recv_data = data,
                            .count = 64,
                            .peer = 1 - rank};
      executions.push_back(std::move(engine::gpu::make_copied_messages(std::span(&message, 1), rank,
                                                                       cluster.resources(rank)))
                               .value());
      arguments[static_cast<std::size_t>(rank)] = {
          .options = {.timeout = std::chrono::nanoseconds(timeout_ns),
                      .stream = cluster.stream(rank).handle()}};
    }
    return executions;
  };
  GpuCluster::Executions first = make_group(120'000'000'000);
  ASSERT_TRUE(cluster.launch(first, arguments, {0, 1}).ok());
  ASSERT_TRUE(cluster.synchronize().ok());
  GpuCluster::Executions second = make_group(100'000'000);
  const auto graphs = cluster.capture(second, arguments).value();
  ASSERT_TRUE(cluster.launch_graphs({graphs[0]}).ok());
  const auto until = std::chrono::steady_clock::now() + patience;
  const auto is_over = [&] {
    const sys::cuda::Current current(device);
    return device.driver().stream_query(cluster.stream(0).handle()) != sys::cuda::driver_not_ready;
  };
  // As a communicator's progress thread does.
  while (!is_over() && std::chrono::steady_clock::now() < until) {
    cluster.engine(0).copy_links().look(steady_now_ns());
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_TRUE(is_over());
  const Status failure = cluster.engine(0).failure();
  cluster.destroy_graphs(graphs);
  ASSERT_FALSE(failure.ok());
  EXPECT_NE(failure.error().message.find(
                "destination address 2 from rank 1 (1 have arrived) on channel 20480"),
            std::string::npos)
      << failure.error().message;
}

// Calls through slots (hosts set apart) and zero-copy calls follow each other.
TEST_F(GpuZeroCopyTransfers, CallsOfACommunicatorDeliverWhetherHostsKeepUpOrNot) {
  const auto devices = usable_devices();
  const auto device_of = [&](int rank) {
    return devices[static_cast<std::size_t>(rank) % devices.size()];
  };
  const RanksOptions options{.ranks = 2,
                             .timeout = test::deadline_of_calls,
                             .device = [&](int rank) { return device_of(rank)->ordinal(); }};
  run_ranks(options, [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    constexpr std::size_t count = (1 << 20) + 13;
    const auto memory = Memory::allocate(device, 3 * count).value();
    auto* data = reinterpret_cast<std::byte*>(memory.address());
    const CallOptions zero_sm{.stream = stream.handle(), .policy = Policy::zero_sm};
    for (int call = 0; call < 12; ++call) {
      const auto value = [&](int rank) { return static_cast<std::uint8_t>(3 * call + rank + 1); };
      const std::vector<std::uint8_t> mine(count, value(communicator.rank()));
      ASSERT_TRUE(device->upload(memory.address(), mine.data(), count).ok());
      if (call % 3 == 0 && communicator.rank() == call % 2)
        std::this_thread::sleep_for(milliseconds(8));
      const Status status =
          communicator.all_gather(data, data + count, count, DataType::uint8, zero_sm);
      ASSERT_TRUE(status.ok()) << status.error().describe();
      ASSERT_TRUE(stream.synchronize().ok());
      std::vector<std::uint8_t> got(2 * count);
      ASSERT_TRUE(device
                      ->copy(reinterpret_cast<std::uint64_t>(got.data()), memory.address() + count,
                             got.size())
                      .ok());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], value(i < count ? 0 : 1)) << "call " << call << ", byte " << i;
    }
    ASSERT_TRUE(communicator.failure().ok());
  });
}

}  // namespace
}  // namespace unisono::test
