// Windows of device memory, signals on streams, and communicators that give their memory back.
#include <gtest/gtest.h>

#include <numeric>

#include "gpu/runs.h"
#include "support/eventually.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::RanksOptions;
using test::run_ranks;
using test::TestStream;
using test::usable_devices;

constexpr int ranks_count = 4;
constexpr std::size_t count = 1000;

// Each rank with a device of its own, and device memory.
class GpuWindows : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    const auto devices = usable_devices(&why);
    if (devices.size() < ranks_count) GTEST_SKIP() << "there are no four devices " << why;
  }
  static RanksOptions options(std::chrono::nanoseconds timeout = test::deadline_of_calls) {
    return {.ranks = ranks_count,
            .timeout = timeout,
            .device = [](int rank) { return device_of(rank)->ordinal(); },
            .has_signals = true};
  }
  static std::shared_ptr<const sys::cuda::Device> device_of(int rank) {
    static const auto devices = usable_devices();
    return devices[static_cast<std::size_t>(rank)];
  }
};

struct Buffer {
  explicit Buffer(const std::shared_ptr<const sys::cuda::Device>& of)
      : device(of), memory(*sys::cuda::Memory::allocate(of, count * sizeof(int))) {}
  void* data() const { return reinterpret_cast<void*>(memory.address()); }
  void fill(int first) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), first);
    ASSERT_TRUE(device->upload(memory.address(), values.data(), count * sizeof(int)).ok());
  }
  std::vector<int> read() const {
    std::vector<int> values(count);
    EXPECT_TRUE(
        device->copy(sys::cuda::address_of(values.data()), memory.address(), count * sizeof(int))
            .ok());
    return values;
  }
  std::shared_ptr<const sys::cuda::Device> device;
  sys::cuda::Memory memory;
};

#define EXPECT_FINE(expression)                        \
  do {                                                 \
    const Status made = expression;                    \
    EXPECT_TRUE(made.ok()) << made.error().describe(); \
  } while (false)

// Each rank puts into the next one's half and waits for the one before.
void put_round(Communicator& communicator, const TestStream& stream, const Window& window,
               Buffer& from, const Buffer& own, int round) {
  const int ranks = communicator.size(), rank = communicator.rank();
  const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
  const SignalOptions on_stream{.stream = stream.handle()};
  from.fill(1000 * round + 100 * rank);
  EXPECT_FINE(communicator.put(window, from.data(), count / 2 * sizeof(int), next,
                               count / 2 * sizeof(int), 3, on_stream));
  const SignalWait wait{.peer = last, .signal = 3};
  EXPECT_FINE(communicator.wait_signals(std::span(&wait, 1), on_stream));
  EXPECT_FINE(stream.synchronize());
  EXPECT_EQ(own.read()[count / 2], 1000 * round + 100 * last);
  EXPECT_EQ(own.read()[count - 1], 1000 * round + 100 * last + static_cast<int>(count) / 2 - 1);
  EXPECT_FINE(communicator.signal(last, 4, on_stream));
  const SignalWait read{.peer = next, .signal = 4};
  EXPECT_FINE(communicator.wait_signals(std::span(&read, 1), on_stream));
  EXPECT_FINE(stream.synchronize());
}

TEST_F(GpuWindows, PutsAreThereBehindTheirSignals) {
  run_ranks(options(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device), other(device);
    Buffer own(device), from(device);
    auto window = communicator.make_window(own.data(), count * sizeof(int), true);
    ASSERT_TRUE(window.ok()) << window.error().describe();
    for (int peer = 0; peer < ranks_count; ++peer) {
      const auto pointer = window->pointer(peer, 8);
      ASSERT_TRUE(pointer.ok()) << pointer.error().describe();
      EXPECT_NE(*pointer, nullptr);
    }
    for (int round = 0; round < 6; ++round)
      put_round(communicator, round % 2 == 0 ? stream : other, *window, from, own, round);
  });
}

TEST_F(GpuWindows, AStreamsWaitForASignalEndsInTime) {
  run_ranks(options(), [&](Communicator& communicator) {
    if (communicator.rank() != 0) return;
    const TestStream stream(device_of(0));
    const SignalWait wait{.peer = 2};
    EXPECT_FINE(communicator.wait_signals(
        std::span(&wait, 1),
        {.stream = stream.handle(), .timeout = std::chrono::milliseconds(300)}));
    EXPECT_FINE(stream.synchronize());
    ASSERT_TRUE(test::eventually([&] { return !communicator.failure().ok(); }));
    const Status failure = communicator.failure();
    EXPECT_TRUE(failure.error().timed_out);
    EXPECT_EQ(failure.error().peer, 2) << failure.error().describe();
  });
}

TEST_F(GpuWindows, ASuspendedCommunicatorHasNoDeviceMemory) {
  run_ranks(options(), [&](Communicator& communicator) {
    const int rank = communicator.rank();
    const auto device = device_of(rank);
    const TestStream stream(device);
    Buffer own(device), from(device);
    auto window = communicator.make_window(own.data(), count * sizeof(int), true);
    ASSERT_TRUE(window.ok()) << window.error().describe();
    const auto sum = [&](int round) {
      from.fill(rank + round);
      EXPECT_FINE(communicator.all_reduce(from.data(), from.data(), count, DataType::int32,
                                          ReduceOperation::sum, {.stream = stream.handle()}));
      EXPECT_FINE(stream.synchronize());
      EXPECT_EQ(from.read()[0], 6 + 4 * round);
      EXPECT_EQ(from.read()[count - 1], 6 + 4 * (round + static_cast<int>(count) - 1));
    };
    for (int round = 0; round < 3; ++round) {
      sum(round);
      EXPECT_GT(communicator.memory().device_bytes, 0U);
      EXPECT_FINE(communicator.suspend());
      EXPECT_TRUE(communicator.is_suspended());
      EXPECT_EQ(communicator.memory().device_bytes, 0U);
      EXPECT_FINE(communicator.failure());
      EXPECT_FALSE(communicator.barrier().ok());
      EXPECT_FINE(communicator.resume());
    }
    sum(9);
    put_round(communicator, stream, *window, from, own, 1);
  });
}

}  // namespace
}  // namespace unisono
