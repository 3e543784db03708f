// Communicators, their streams and their graphs beside each other: threads as ranks, one on each
// device; and two ranks on one.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/str.h"
#include "gpu/sums_in_graphs.h"
#include "support/eventually.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono::test {
namespace {

using sys::cuda::Memory;

std::shared_ptr<const sys::cuda::Device> device_of(int rank) {
  static const auto devices = usable_devices();
  return devices[static_cast<std::size_t>(rank) % devices.size()];
}

// A rank on each device.
class GpuGraphs : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    std::string why;
    devices_ = static_cast<int>(usable_devices(&why).size());
    if (devices_ == 0) GTEST_SKIP() << why;
    if (devices_ < 2) GTEST_SKIP() << "there are no two devices";
  }
  RanksOptions options() const {
    return {.ranks = std::min(devices_, 4),
            .timeout = test::deadline_of_calls,
            .device = [](int rank) { return device_of(rank)->ordinal(); }};
  }
  // Of the communicator and of children of its; memory is freed when all ranks are through.
  static std::vector<std::unique_ptr<Sums>> make_sums(Communicator& communicator, int communicators,
                                                      std::size_t count) {
    std::vector<std::unique_ptr<Sums>> made;
    for (int i = 0; i < communicators; ++i)
      made.push_back(
          std::make_unique<Sums>(i == 0 ? communicator : communicator.split(0, 0).value(),
                                 device_of(communicator.rank()), count));
    for (auto& one : made)
      for (int call = 0; call < 2; ++call) {
        one->fill(static_cast<float>(call));
        one->call();
        one->expect_sums();
      }
    return made;
  }

  // Five times: what `call` calls, and whether it came out right.
  template <class Call>
  static void try_in_rounds(Communicator& communicator, std::vector<std::unique_ptr<Sums>>& sums,
                            Call call) {
    for (int round = 0; round < 5; ++round) {
      for (auto& one : sums) one->fill(static_cast<float>(round));
      call(round);
      for (auto& one : sums) one->expect_sums();
      if (HasFailure()) break;
    }
    static_cast<void>(communicator.barrier());
  }

  int devices_ = 0;
};
INSTANTIATE_TEST_SUITE_P(OfElements, GpuGraphs,
                         testing::Values(256, std::size_t{1} << 18, std::size_t{1} << 22),
                         testing::PrintToStringParamName());

TEST_P(GpuGraphs, SeveralCommunicatorsInOne) {
  run_ranks(options(), [&](Communicator& communicator) {
    auto sums = make_sums(communicator, 3, GetParam());
    Graph graph(sums[0]->stream(), Graph::thread_local_mode);
    for (int call = 0; call < 2; ++call) {
      for (std::size_t i = 1; i < sums.size(); ++i) graph.fork(sums[i]->stream());
      for (auto& one : sums) one->call();
      for (std::size_t i = 1; i < sums.size(); ++i) graph.join(sums[i]->stream());
    }
    graph.end();
    for (int replay = 0; replay < 5; ++replay) {
      for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i]->fill(static_cast<float>(10 * replay) + static_cast<float>(i));
      graph.launch();
      for (auto& one : sums) one->expect_sums();
      if (HasFailure()) break;
    }
    static_cast<void>(communicator.barrier());
  });
}

// The ranks' streams are ready for the calls in different orders.
TEST_P(GpuGraphs, SeveralCommunicatorsOnStreams) {
  run_ranks(options(), [&](Communicator& communicator) {
    auto sums = make_sums(communicator, 3, GetParam());
    const auto device = device_of(communicator.rank());
    const auto waste = Memory::allocate(device, std::size_t{256} << 20).value();
    ASSERT_TRUE(communicator.barrier().ok());
    try_in_rounds(communicator, sums, [&](int round) {
      const auto busy = static_cast<std::size_t>(communicator.rank() + round) % sums.size();
      {
        const sys::cuda::Current current(*device);
        for (int i = 0; i < 20; ++i)
          ASSERT_EQ(device->driver().set_bytes(waste.address(), 1, waste.bytes(),
                                               sums[busy]->stream().handle()),
                    sys::cuda::driver_success);
      }
      for (int call = 0; call < 3; ++call)
        for (auto& one : sums) one->call();
    });
  });
}

// Small ones fit beside each other.
// A replay goes the way that its capture found.
TEST_P(GpuGraphs, MemoryIsReachedFromItsFirstCaptureOn) {
  if (GetParam() > 1000) GTEST_SKIP() << "has a size of its own";
  run_ranks(options(), [&](Communicator& communicator) {
    constexpr std::size_t block_bytes = std::size_t{8} << 20;
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    const auto gather_into = [&](const Memory& memory) {
      auto* const all = reinterpret_cast<std::byte*>(memory.address());
      const Status status = communicator.all_gather(
          all + static_cast<std::size_t>(communicator.rank()) * block_bytes, all,
          static_cast<std::int64_t>(block_bytes), DataType::uint8, {.stream = stream.handle()});
      ASSERT_TRUE(status.ok()) << status.error().describe();
    };
    const std::size_t bytes = block_bytes * static_cast<std::size_t>(communicator.size());
    const Memory known = Memory::allocate(device, bytes).value();
    ASSERT_TRUE(communicator.register_memory(reinterpret_cast<void*>(known.address()), bytes).ok());
    gather_into(known);
    ASSERT_TRUE(stream.synchronize().ok());
    const Memory fresh = Memory::allocate(device, bytes).value();
    Graph graph(stream, Graph::thread_local_mode);
    gather_into(fresh);
    graph.end();
    EXPECT_GE(communicator.memory().registered_bytes, known.bytes() + fresh.bytes());
    ASSERT_TRUE(communicator.barrier().ok());
    const auto peers = static_cast<std::size_t>(communicator.size() - 1);
    EXPECT_GE(communicator.memory().mapped_bytes, peers * (known.bytes() + fresh.bytes()));
    graph.launch();
    ASSERT_TRUE(stream.synchronize().ok());
    ASSERT_TRUE(communicator.barrier().ok());
  });
}

TEST_P(GpuGraphs, SmallCallsOfSeveralCommunicatorsInAnyOrder) {
  if (GetParam() > 1000) GTEST_SKIP() << "too large to fit beside each other";
  run_ranks(options(), [&](Communicator& communicator) {
    auto sums = make_sums(communicator, 3, GetParam());
    try_in_rounds(communicator, sums, [&](int) {
      for (int call = 0; call < 3; ++call)
        for (std::size_t i = 0; i < sums.size(); ++i)
          sums[(i + static_cast<std::size_t>(communicator.rank())) % sums.size()]->call();
    });
  });
}

TEST_P(GpuGraphs, DestroyWaitsForWhatTheyReplay) {
  run_ranks(options(), [&](Communicator& communicator) {
    auto sums = make_sums(communicator, 2, GetParam());
    Sums& used = *sums[1];
    Graph graph(used.stream(), Graph::thread_local_mode);
    for (int call = 0; call < 20; ++call) used.call();
    graph.end();
    used.fill(7);
    ASSERT_TRUE(communicator.barrier().ok());
    for (int replay = 0; replay < 5; ++replay) graph.launch();
    const Status destroyed = used.communicator().destroy();
    EXPECT_TRUE(destroyed.ok()) << destroyed.error().describe();
    used.expect_sums_of_past_calls();
    // The others are of use.
    sums[0]->fill(3);
    sums[0]->call();
    sums[0]->expect_sums();
    static_cast<void>(communicator.barrier());
  });
}

TEST_P(GpuGraphs, EveryModeOfCaptureTakesAFirstCall) {
  for (const auto mode : {Graph::global, Graph::thread_local_mode, Graph::relaxed})
    run_ranks(options(), [&](Communicator& communicator) {
      Sums sums(communicator, device_of(communicator.rank()), GetParam());
      ASSERT_TRUE(communicator.barrier().ok());
      Graph graph(sums.stream(), mode);
      sums.call();
      graph.end();
      for (int replay = 0; replay < 3 && !HasFatalFailure(); ++replay) {
        sums.fill(static_cast<float>(replay));
        graph.launch();
        sums.expect_sums();
      }
      static_cast<void>(communicator.barrier());
    });
}

// Neither may take the other's multiprocessors while it waits for it.
TEST(GpuOneDevice, ServesTwoRanks) {
  std::string why;
  if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  const RanksOptions options{.ranks = 2, .timeout = test::deadline_of_calls, .device = [](int) {
                               return device_of(0)->ordinal();
                             }};
  run_ranks(options, [](Communicator& communicator) {
    std::vector<std::unique_ptr<Sums>> sums;
    for (const std::size_t count : {std::size_t{256}, std::size_t{1} << 18, std::size_t{1} << 23})
      sums.push_back(std::make_unique<Sums>(communicator, device_of(0), count));
    ASSERT_TRUE(communicator.barrier().ok());
    for (int round = 0; round < 3; ++round)
      for (auto& one : sums) {
        one->fill(static_cast<float>(round));
        one->call();
        one->expect_sums();
      }
    ASSERT_TRUE(communicator.barrier().ok());
  });
}

}  // namespace
}  // namespace unisono::test
