// Groups of messages by kernels.
#include <gtest/gtest.h>

#include <random>

#include "device/transfers.h"
#include "engine/gpu/messages.h"
#include "gpu/message_groups.h"
#include "support/emulated_device.h"

namespace unisono::test {
namespace {

constexpr std::size_t room = std::size_t{3} << 20;

class GpuMessages : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  }
  std::size_t draw(std::size_t most) { return 1 + random_() % most; }

  std::mt19937_64 random_{test_seed()};
};

// All of a group in lines: by the kernel that is for them alone, where they are few.
TEST_F(GpuMessages, InLl128ArriveWhole) {
  for (const int ranks : {2, 3, 4}) {
    GpuCluster cluster(ranks, {});
    MessageGroups groups(cluster, random_, room);
    // Around a unit, a line and a group; more groups than a warp has slots.
    for (const std::size_t bytes : {1, 15, 16, 17, 119, 121, 959, 960, 961, 65'536, 300'001}) {
      const auto one = [&](int) { return bytes; };
      EXPECT_EQ(groups.run({.bytes_of = one}, 5), "") << ranks << " ranks, " << bytes << " bytes";
      if (HasFailure()) return;
    }
    for (const int messages : {2, 7, 40}) {
      const auto some = [&](int) { return draw(messages < 40 ? 50'000 : 900); };
      EXPECT_EQ(
          groups.run(
              {.messages = messages, .bytes_of = some, .options = {.max_sms = cluster.most_sms()}},
              3),
          "")
          << messages << " messages between each two of " << ranks << " ranks";
    }
  }
}

// Short and long ones in one group: lines and slots, by one kernel, in the order of each pair.
TEST_F(GpuMessages, OfAllSizesArriveTogether) {
  GpuCluster cluster(4, {.engine = {.slots = 2, .slot_bytes = 4096, .ll128_messages_bytes = 5000}});
  MessageGroups groups(cluster, random_, room);
  for (int call = 0; call < 10; ++call) {
    const int messages = static_cast<int>(draw(6));
    const auto any = [&](int) { return draw(random_() % 2 == 0 ? 4999 : 60'000); };
    EXPECT_EQ(groups.run({.messages = messages, .bytes_of = any}), "") << messages << " messages";
  }
}

TEST_F(GpuMessages, FewThreadBlocksCarryThemAll) {
  GpuCluster cluster(4, {});
  MessageGroups groups(cluster, random_, room);
  for (const int max_sms : {1, 8, 30}) {
    const auto some = [&](int) { return draw(100'000); };
    EXPECT_EQ(groups.run({.messages = 2, .bytes_of = some, .options = {.max_sms = max_sms}}, 2), "")
        << max_sms;
  }
}

TEST_F(GpuMessages, GraphsReplayWithNewData) {
  GpuCluster cluster(3, {.engine = {.ll128_messages_bytes = 20'000}});
  MessageGroups groups(cluster, random_, room);
  for (const std::size_t most : {19'999, 40'000}) {
    const auto some = [&](int) { return draw(most); };
    EXPECT_EQ(groups.run({.messages = 3, .bytes_of = some}, 10, true), "") << most;
  }
}

// The receiver never comes: the sender fills the slots, and says what it waits for.
TEST_F(GpuMessages, ALl128SenderSaysThatItWaitsForSlots) {
  GpuCluster cluster(2, {});
  auto memory = sys::cuda::Memory::allocate(cluster.engine(0).shared_device(), 960);
  ASSERT_TRUE(memory.ok());
  auto* data = reinterpret_cast<void*>(memory->address());
  const auto call = [&](const std::vector<int>& ranks) {
    GpuCluster::Executions executions;
    std::vector<engine::Arguments> arguments(2);
    for (int rank = 0; rank < 2; ++rank) {
      const Message message{.is_send = rank == 0,
                            .send_data = data,
                            .recv_data = data,
                            .count = 960,
                            .peer = 1 - rank};
      executions.push_back(std::move(engine::gpu::make_messages(std::span(&message, 1), rank, 2, {},
                                                                cluster.resources(rank)))
                               .value());
      arguments[static_cast<std::size_t>(rank)] = {
          .options = {.timeout = std::chrono::milliseconds(100),
                      .stream = cluster.stream(rank).handle()}};
    }
    ASSERT_TRUE(cluster.launch(executions, arguments, ranks).ok());
    for (const int rank : {0, 1}) ASSERT_TRUE(cluster.stream(rank).synchronize().ok());
  };
  call({0, 1});
  for (std::size_t ahead = 0; ahead < device::ll128_messages_slots; ++ahead) {
    call({0});
    EXPECT_TRUE(cluster.engine(0).failure().ok());
  }
  call({0});
  const Status failure = cluster.engine(0).failure();
  ASSERT_FALSE(failure.ok());
  EXPECT_NE(failure.error().message.find("a free slot for message 2 to rank 1 (it has released 1)"),
            std::string::npos)
      << failure.error().describe();
}

}  // namespace
}  // namespace unisono::test
