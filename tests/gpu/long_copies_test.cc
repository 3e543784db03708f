// Calls by the copy engines that are more commands than a stream holds. Skipped, and says so, where
// there is no GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/fast_clock.h"
#include "engine/gpu/copies.h"
#include "gpu/runs.h"
#include "support/emulated_device.h"
#include "support/eventually.h"
#include "support/gpu_cluster.h"

namespace unisono::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using sys::cuda::Memory;

// Two commands for each message of 4 KiB; a stream holds about a thousand.
constexpr std::int64_t long_bytes = 2'400'007;
// Of each block, where each rank sends to all others and receives from them.
std::int64_t long_block(int ranks) { return long_bytes / ranks; }

class GpuLongCopies : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  }
  static GpuCluster::Options small_slots() {
    return {.engine = {.copies = {.slots = 2, .slot_bytes = 4096}}};
  }
  std::mt19937_64 random_{test_seed()};
};

// One thread puts the ranks' calls on their streams: it must not wait for room on one of them.
TEST_F(GpuLongCopies, OfOneThreadDeliver) {
  for (const int ranks : {2, 4})
    for (const auto& [collective, name] : {std::pair{Collective::all_gather, "direct"},
                                           {Collective::all_gather, "ring"},
                                           {Collective::all_to_all, "direct"},
                                           {Collective::broadcast, "knomial4"}}) {
      GpuCluster cluster(ranks, small_slots());
      auto run = copies_of(**algorithm::find(collective, name), ranks, long_block(ranks), random_);
      run.type = DataType::uint8;
      run.calls = 2;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
    }
}

TEST_F(GpuLongCopies, OfGroupsDeliver) {
  GpuCluster cluster(2, small_slots());
  constexpr auto bytes = static_cast<std::size_t>(long_bytes);
  std::vector<Memory> memory;
  std::vector<std::vector<std::uint8_t>> sent;
  GpuCluster::Executions executions;
  std::vector<engine::Arguments> arguments;
  for (int rank = 0; rank < 2; ++rank) {
    sent.emplace_back(bytes);
    for (std::uint8_t& byte : sent.back()) byte = static_cast<std::uint8_t>(random_());
    for (int i = 0; i < 2; ++i)
      memory.push_back(Memory::allocate(cluster.engine(rank).shared_device(), bytes).value());
    const Memory& source = memory[memory.size() - 2];
    ASSERT_TRUE(
        cluster.engine(rank).device().upload(source.address(), sent.back().data(), bytes).ok());
    std::vector<Message> messages;
    for (const bool is_send : {true, false})
      messages.push_back({.is_send = is_send,
                          .send_data = reinterpret_cast<void*>(source.address()),
                          .recv_data = reinterpret_cast<void*>(memory.back().address()),
                          .count = long_bytes,
                          .peer = 1 - rank});
    executions.push_back(
        std::move(engine::gpu::make_copied_messages(messages, rank, cluster.resources(rank)))
            .value());
    arguments.push_back({.options = {.timeout = std::chrono::seconds(120),
                                     .stream = cluster.stream(rank).handle()}});
  }
  const Status launched = cluster.launch(executions, arguments, {0, 1});
  ASSERT_TRUE(launched.ok()) << launched.error().describe();
  ASSERT_TRUE(cluster.synchronize().ok());
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::uint8_t> got(bytes);
    const Memory& output = memory[static_cast<std::size_t>(2 * rank + 1)];
    ASSERT_TRUE(cluster.engine(rank)
                    .device()
                    .copy(reinterpret_cast<std::uint64_t>(got.data()), output.address(), bytes)
                    .ok());
    EXPECT_EQ(got, sent[static_cast<std::size_t>(1 - rank)]) << "rank " << rank;
  }
}

// The host of rank 0 must be there when the deadline comes, not in the driver.
TEST_F(GpuLongCopies, EndAtTheDeadlineWhereAPeerDoesNotCall) {
  GpuCluster cluster(2, small_slots());
  auto run = copies_of(**algorithm::find(Collective::all_gather, "direct"), 2, long_bytes, random_);
  run.request.in_place = false;
  auto executions = std::move(cluster.make_executions(run)).value();
  std::vector<Memory> memory;
  std::vector<engine::Arguments> arguments(2);
  for (int rank = 0; rank < 2; ++rank) {
    memory.push_back(
        Memory::allocate(cluster.engine(rank).shared_device(), std::size_t{3} * long_bytes)
            .value());
    auto* data = reinterpret_cast<std::byte*>(memory.back().address());
    arguments[static_cast<std::size_t>(rank)] = {
        .input = data,
        .output = data + long_bytes,
        .count = long_bytes,
        .type = DataType::uint8,
        .options = {.timeout = std::chrono::seconds(120), .stream = cluster.stream(rank).handle()}};
  }
  ASSERT_TRUE(cluster.launch(executions, arguments, {0, 1}).ok());
  ASSERT_TRUE(cluster.synchronize().ok());

  arguments[0].options.timeout = std::chrono::milliseconds(100);
  ASSERT_TRUE(executions[0]->start(arguments[0]).ok());
  const sys::cuda::Device& device = cluster.engine(0).device();
  const auto until = steady_clock::now() + patience;
  const auto is_over = [&] {
    const sys::cuda::Current current(device);
    return device.driver().stream_query(cluster.stream(0).handle()) != sys::cuda::driver_not_ready;
  };
  Status failure;
  // As a communicator's progress thread does.
  while ((failure.ok() || !is_over()) && steady_clock::now() < until) {
    if (failure.ok()) {
      auto complete = executions[0]->poll();
      if (!complete.ok()) failure = complete.take_error();
      ASSERT_TRUE(!failure.ok() || !*complete) << "all of the call is on a stream that waits";
    }
    cluster.engine(0).copy_links().look(steady_now_ns());
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_TRUE(is_over());
  ASSERT_FALSE(failure.ok());
  EXPECT_TRUE(failure.error().timed_out) << failure.error().message;
  EXPECT_EQ(failure.error().peer, 1);
  EXPECT_EQ(executions[0]->waiting().peer, 1);
  EXPECT_EQ(executions[0]->waiting().kind, trace::Waiting::Kind::message);
}

}  // namespace
}  // namespace unisono::test
