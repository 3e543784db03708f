// Collectives and messages by the copy engines: their data, graphs, how their waits end, and that
// they need no multiprocessor. Skipped, and says so, where there is no GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "base/str.h"
#include "engine/gpu/copies.h"
#include "engine/gpu/messages.h"
#include "gpu/runs.h"
#include "support/emulated_device.h"
#include "support/eventually.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using sys::cuda::Memory;

constexpr engine::gpu::CopyLinks::Options small_slots{.slots = 2, .slot_bytes = 4096};

std::int64_t now_ns() {
  return std::chrono::nanoseconds(steady_clock::now().time_since_epoch()).count();
}

class GpuCopies : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  }
};

TEST_F(GpuCopies, EveryPlanWithoutReductionGivesTheRightResult) {
  std::mt19937_64 random(test_seed());
  for (int ranks : {2, 4}) {
    GpuCluster cluster(ranks, {.engine = {.copies = small_slots}});
    int runs = 0;
    for (const algorithm::Entry& entry : algorithm::entries())
      for (std::int64_t count : {1, 4099}) {
        auto run = copies_of(entry, ranks, count, random);
        if (entry.name.find("hierarchical") != std::string_view::npos ||
            !copies_have_order(run, small_slots.slots))
          continue;
        run.type = static_cast<DataType>(random() % data_type_count);
        run.calls = 3;
        EXPECT_EQ(cluster.run(run), "") << describe(run);
        if (HasFailure()) return;
        ++runs;
      }
    EXPECT_GE(runs, 20);
  }
}

TEST_F(GpuCopies, GraphsReplayWithNewData) {
  std::mt19937_64 random(test_seed());
  GpuCluster cluster(2, {.engine = {.copies = small_slots}});
  for (const auto& [collective, name] : {std::pair{Collective::all_gather, "direct"},
                                         {Collective::all_to_all, "direct"},
                                         {Collective::broadcast, "knomial4"},
                                         {Collective::gather, "knomial4"},
                                         {Collective::scatter, "knomial4"}}) {
    auto run = copies_of(**algorithm::find(collective, name), 2, 3333, random);
    run.calls = 5;
    run.is_graph = true;
    EXPECT_EQ(cluster.run(run), "") << describe(run);
  }
}

TEST_F(GpuCopies, LargeCallsGoThroughTheUsualSlots) {
  std::mt19937_64 random(test_seed());
  GpuCluster cluster(2, {});
  for (const bool is_graph : {false, true}) {
    auto run = copies_of(**algorithm::find(Collective::all_gather, "direct"), 2, 6'000'001, random);
    run.calls = 3;
    run.is_graph = is_graph;
    EXPECT_EQ(cluster.run(run), "") << describe(run);
  }
}

// Two ranks, which send each other and themselves messages of three sizes.
class GpuGroups : public GpuCopies, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(By, GpuGroups, testing::Values("copies", "kernel"),
                         [](const auto& with) { return with.param; });

TEST_P(GpuGroups, OfMessagesArrive) {
  auto copies = small_slots;
  copies.zero_copy_min_bytes = 4096;
  int looks = 0;
  GpuCluster cluster(
      2, {.engine = {.copies = copies}, .sees = [&](int, int) { return ++looks % 3 != 0; }});
  const std::vector<std::int64_t> sizes{3, 4096, 50'001};
  const auto value = [](int from, int to, std::size_t which, std::size_t at) {
    return static_cast<std::uint8_t>(from * 31 + to * 7 + static_cast<int>(which) * 3 +
                                     static_cast<int>(at % 251));
  };
  std::vector<Memory> memory;
  std::vector<std::vector<Message>> groups(2);
  for (int rank = 0; rank < 2; ++rank)
    for (int peer = 0; peer < 2; ++peer)
      for (std::size_t which = 0; which < sizes.size(); ++which)
        for (const bool is_send : {true, false}) {
          const auto bytes = static_cast<std::size_t>(sizes[which]);
          memory.push_back(
              Memory::allocate(cluster.engine(rank).shared_device(), bytes + 8).value());
          const std::uint64_t address = memory.back().address() + which;
          if (is_send) {
            std::vector<std::uint8_t> out(bytes);
            for (std::size_t at = 0; at < bytes; ++at) out[at] = value(rank, peer, which, at);
            ASSERT_TRUE(cluster.engine(rank).device().upload(address, out.data(), bytes).ok());
          }
          groups[static_cast<std::size_t>(rank)].push_back(
              {.is_send = is_send,
               .send_data = is_send ? reinterpret_cast<void*>(address) : nullptr,
               .recv_data = is_send ? nullptr : reinterpret_cast<void*>(address),
               .count = sizes[which],
               .peer = peer});
        }
  for (int round = 0; round < 3; ++round) {
    GpuCluster::Executions executions;
    std::vector<engine::Arguments> arguments(2);
    for (int rank = 0; rank < 2; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      auto& resources = cluster.resources(rank);
      auto made = GetParam() == "copies"
                      ? engine::gpu::make_copied_messages(groups[r], rank, resources)
                      : engine::gpu::make_messages(groups[r], rank, 2, {}, resources);
      executions.push_back(std::move(made).value());
      arguments[r] = {.options = {.timeout = std::chrono::seconds(120),
                                  .stream = cluster.stream(rank).handle()}};
    }
    ASSERT_TRUE(cluster.launch(executions, arguments, {0, 1}).ok());
    ASSERT_TRUE(cluster.synchronize().ok());
  }
  for (int rank = 0; rank < 2; ++rank)
    for (std::size_t i = 0; i < groups[static_cast<std::size_t>(rank)].size(); ++i) {
      const Message& message = groups[static_cast<std::size_t>(rank)][i];
      if (message.is_send) continue;
      std::vector<std::uint8_t> got(static_cast<std::size_t>(message.count));
      ASSERT_TRUE(cluster.engine(rank)
                      .device()
                      .copy(reinterpret_cast<std::uint64_t>(got.data()),
                            reinterpret_cast<std::uint64_t>(message.recv_data), got.size())
                      .ok());
      for (std::size_t at = 0; at < got.size(); ++at)
        ASSERT_EQ(got[at], value(message.peer, rank, i / 2 % sizes.size(), at))
            << "rank " << rank << " from " << message.peer << ", byte " << at;
    }
}

// Rank 0 calls, rank 1 does not.
class GpuCopiesAlone : public GpuCopies {
 protected:
  void launch_alone(std::int64_t timeout_ns, bool in_graph) {
    cluster_ =
        std::make_unique<GpuCluster>(2, GpuCluster::Options{.engine = {.copies = small_slots}});
    std::mt19937_64 random(1);
    constexpr std::int64_t count = 9000;
    auto run = copies_of(**algorithm::find(Collective::all_gather, "direct"), 2, count, random);
    run.request.in_place = false;
    executions_ = std::move(cluster_->make_executions(run)).value();
    std::vector<engine::Arguments> arguments(2);
    for (int rank = 0; rank < 2; ++rank) {
      memory_.push_back(
          Memory::allocate(cluster_->engine(rank).shared_device(), 3 * count).value());
      auto* data = reinterpret_cast<std::byte*>(memory_.back().address());
      arguments[static_cast<std::size_t>(rank)] = {
          .input = data,
          .output = data + count,
          .count = count,
          .type = DataType::uint8,
          .options = {.timeout = std::chrono::nanoseconds(timeout_ns),
                      .stream = cluster_->stream(rank).handle()}};
    }
    // Both once, so that the connection is there.
    ASSERT_TRUE(cluster_->launch(executions_, arguments, {0, 1}).ok());
    ASSERT_TRUE(cluster_->synchronize().ok());
    if (!in_graph) {
      ASSERT_TRUE(cluster_->launch(executions_, arguments, {0}).ok());
      return;
    }
    graphs_ = cluster_->capture(executions_, arguments).value();
    ASSERT_TRUE(cluster_->launch_graphs({graphs_[0]}).ok());
  }
  // As a communicator's progress thread does, until the stream of rank 0 is through.
  bool look_until_over(milliseconds patience) {
    const auto until = steady_clock::now() + patience;
    const sys::cuda::Device& device = cluster_->engine(0).device();
    const sys::cuda::Current current(device);
    while (device.driver().stream_query(cluster_->stream(0).handle()) ==
           sys::cuda::driver_not_ready) {
      if (steady_clock::now() > until) return false;
      cluster_->engine(0).copy_links().look(now_ns());
      std::this_thread::sleep_for(milliseconds(5));
    }
    return true;
  }
  void TearDown() override {
    if (cluster_) cluster_->destroy_graphs(graphs_);
  }

  std::vector<Memory> memory_;
  std::unique_ptr<GpuCluster> cluster_;
  GpuCluster::Executions executions_;
  std::vector<sys::cuda::GraphExecHandle*> graphs_;
};

TEST_F(GpuCopiesAlone, AWaitEndsAtItsDeadlineAndSaysForWhatItWaited) {
  for (const bool in_graph : {false, true}) {
    launch_alone(100'000'000, in_graph);
    const auto begin = steady_clock::now();
    ASSERT_TRUE(look_until_over(milliseconds(5000)));
    EXPECT_GE(steady_clock::now() - begin, milliseconds(90));
    const Status failure = cluster_->engine(0).failure();
    ASSERT_FALSE(failure.ok());
    EXPECT_TRUE(failure.error().timed_out);
    EXPECT_EQ(failure.error().peer, 1);
    EXPECT_NE(failure.error().message.find("a stream of rank 0"), std::string::npos)
        << failure.error().message;
    EXPECT_NE(failure.error().message.find("waited for message 4 from rank 1 (3 have arrived)"),
              std::string::npos)
        << failure.error().message;
    cluster_->destroy_graphs(graphs_);
    graphs_.clear();
  }
}

TEST_F(GpuCopiesAlone, StopEndsAllWaits) {
  launch_alone(60'000'000'000, false);
  cluster_->engine(0).stop();
  EXPECT_TRUE(look_until_over(milliseconds(5000)));
  EXPECT_TRUE(cluster_->engine(0).failure().ok());
}

// A kernel that takes all multiprocessors until it is told to end.
constexpr const char* occupy = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry occupy(.param .u64 flag)
{
  .reg .pred %p;
  .reg .u64 %address;
  .reg .u32 %value;
  ld.param.u64 %address, [flag];
again:
  ld.volatile.global.u32 %value, [%address];
  setp.eq.u32 %p, %value, 0;
  @%p bra again;
  ret;
}
)";

// A copy to another device goes by a copy engine, whatever runs on the multiprocessors. (One inside
// a device, out of a slot, is a kernel of the driver's.)
TEST_F(GpuCopies, WhatIsSentToAnotherDeviceNeedsNoMultiprocessor) {
  if (usable_devices().size() < 2) GTEST_SKIP() << "there are no two devices";
  GpuCluster cluster(2, {});
  std::mt19937_64 random(1);
  constexpr std::int64_t count = 10'000'000;
  auto run = copies_of(**algorithm::find(Collective::broadcast, "knomial4"), 2, count, random);
  run.request.in_place = true;
  run.request.root = run.problem.root = 0;
  auto executions = std::move(cluster.make_executions(run)).value();
  std::vector<Memory> memory;
  std::vector<engine::Arguments> arguments(2);
  for (int rank = 0; rank < 2; ++rank) {
    memory.push_back(Memory::allocate(cluster.engine(rank).shared_device(), count).value());
    auto* data = reinterpret_cast<std::byte*>(memory.back().address());
    arguments[static_cast<std::size_t>(rank)] = {
        .input = data,
        .output = data,
        .count = count,
        .type = DataType::uint8,
        .options = {.timeout = std::chrono::seconds(120), .stream = cluster.stream(rank).handle()}};
  }
  ASSERT_TRUE(cluster.launch(executions, arguments, {0, 1}).ok());
  ASSERT_TRUE(cluster.synchronize().ok());

  const auto device = cluster.engine(0).shared_device();
  auto module = sys::cuda::Module::load(device, occupy).value();
  const sys::cuda::Kernel kernel = module.kernel("occupy").value();
  auto flag = sys::cuda::MappedHostMemory::allocate(device, 4).value();
  const TestStream busy(device);
  sys::cuda::DeviceAddress address = flag.address();
  void* parameters[] = {&address};
  const sys::cuda::Current current(*device);
  constexpr unsigned threads = 1024;  // two such blocks fill a multiprocessor
  ASSERT_EQ(
      kernel.launch(static_cast<unsigned>(2 * device->sms()), threads, busy.handle(), parameters),
      sys::cuda::driver_success);
  ASSERT_TRUE(cluster.launch(executions, arguments, {0, 1}).ok());
  const auto until = steady_clock::now() + milliseconds(5000);
  const auto is_over = [&](const TestStream& stream) {
    return device->driver().stream_query(stream.handle()) == sys::cuda::driver_success;
  };
  while (!is_over(cluster.stream(0)) && steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(is_over(cluster.stream(0))) << "a copy waited for a multiprocessor";
  EXPECT_FALSE(is_over(busy));
  std::atomic_ref(*reinterpret_cast<std::uint32_t*>(flag.data())).store(1);
  EXPECT_TRUE(busy.synchronize().ok());
  EXPECT_TRUE(cluster.synchronize().ok());
}

// Communicators, two ranks on one device or on two.
class GpuZeroSm : public GpuCopies {
 protected:
  static RanksOptions options() {
    return {.ranks = 2, .timeout = test::deadline_of_calls, .device = [](int rank) {
              return device_of(rank)->ordinal();
            }};
  }
  static std::shared_ptr<const sys::cuda::Device> device_of(int rank) {
    static const auto devices = usable_devices();
    return devices[static_cast<std::size_t>(rank) % devices.size()];
  }
};

TEST_F(GpuZeroSm, CallsOfACommunicatorDeliver) {
  run_ranks(options(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    constexpr std::size_t count = 3001;
    std::vector<std::uint8_t> mine(count, static_cast<std::uint8_t>(communicator.rank() + 1));
    const auto memory = Memory::allocate(device, 3 * count).value();
    ASSERT_TRUE(device->upload(memory.address(), mine.data(), count).ok());
    auto* data = reinterpret_cast<std::byte*>(memory.address());
    const CallOptions zero_sm{.stream = stream.handle(), .policy = Policy::zero_sm};
    ASSERT_TRUE(communicator.all_gather(data, data + count, count, DataType::uint8, zero_sm).ok());
    ASSERT_TRUE(communicator.barrier(zero_sm).ok());
    ASSERT_TRUE(stream.synchronize().ok());
    ASSERT_TRUE(communicator.failure().ok());
    std::vector<std::uint8_t> got(2 * count);
    ASSERT_TRUE(device
                    ->copy(reinterpret_cast<std::uint64_t>(got.data()), memory.address() + count,
                           got.size())
                    .ok());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], 1 + i / count) << i;

    const Status refused =
        communicator.all_reduce(data, data, count, DataType::uint8, ReduceOperation::sum, zero_sm);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::misuse);
    EXPECT_NE(refused.error().message.find("zero_sm cannot run all_reduce"), std::string::npos);
    EXPECT_NE(refused.error().message.find("all_gather"), std::string::npos);
    EXPECT_TRUE(communicator.failure().ok());
  });
}

TEST_F(GpuZeroSm, MaxSmsBoundsAKernelAndRefusesWhatCannotBeBounded) {
  run_ranks(options(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    constexpr std::size_t count = 200'000;
    const std::vector<float> mine(count, static_cast<float>(communicator.rank() + 1));
    const auto memory = Memory::allocate(device, count * sizeof(float)).value();
    ASSERT_TRUE(device->upload(memory.address(), mine.data(), count * sizeof(float)).ok());
    auto* data = reinterpret_cast<void*>(memory.address());
    CallOptions few{.stream = stream.handle(), .max_sms = 2};
    const Status status =
        communicator.all_reduce(data, data, count, DataType::float32, ReduceOperation::sum, few);
    ASSERT_TRUE(status.ok()) << status.error().describe();
    ASSERT_TRUE(stream.synchronize().ok());
    ASSERT_TRUE(communicator.failure().ok()) << communicator.failure().error().describe();
    std::vector<float> got(count);
    ASSERT_TRUE(device
                    ->copy(reinterpret_cast<std::uint64_t>(got.data()), memory.address(),
                           count * sizeof(float))
                    .ok());
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(got[i], 3.0F) << i;
    few.algorithm = "two_shot";
    few.channels = 8;
    const Status refused =
        communicator.all_reduce(data, data, count, DataType::float32, ReduceOperation::sum, few);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("max_sms is 2"), std::string::npos)
        << refused.error().message;
  });
}

TEST_F(GpuZeroSm, AbortEndsAStreamThatWaits) {
  run_ranks(options(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    const auto memory = Memory::allocate(device, 4096).value();
    auto* data = reinterpret_cast<std::byte*>(memory.address());
    const CallOptions zero_sm{.stream = stream.handle(), .policy = Policy::zero_sm};
    const auto call = [&] {
      return communicator.all_gather(data, data + 1024, 1024, DataType::uint8, zero_sm);
    };
    ASSERT_TRUE(call().ok());
    ASSERT_TRUE(stream.synchronize().ok());
    expect_abort_is_told(communicator, stream, call);
  });
}

}  // namespace
}  // namespace unisono::test
