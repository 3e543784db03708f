// Ranks as processes, which map each other's device memory. On the emulated devices alone: a
// process that has forked cannot use CUDA. They run in a program whose parent opens no device.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/str.h"
#include "support/emulated_device.h"
#include "support/eventually.h"
#include "support/forked_ranks.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono::test {
namespace {

class GpuProcesses : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (EmulatedDevice::find() == nullptr) GTEST_SKIP() << "a forked process cannot use real GPUs";
    test_seed();
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuProcesses, testing::Values(2, 4));

// Each rank opens its device in its own process.
void use_device(int rank, InitOptions& options) { options.device = rank; }

std::shared_ptr<const sys::cuda::Device> device_of(int rank) {
  return sys::cuda::Device::open(rank).value();
}

// Sums `count` elements on the device; "" where the sum is right.
std::string reduce_on_device(Communicator& communicator, const TestStream& stream,
                             std::int64_t count) {
  const auto& device = stream.shared_device();
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(std::int32_t);
  auto memory = sys::cuda::Memory::allocate(device, bytes);
  if (!memory.ok()) return memory.error().describe();
  std::vector<std::int32_t> data(static_cast<std::size_t>(count), communicator.rank() + 1);
  Status status = device->upload(memory->address(), data.data(), bytes);
  auto* const at = reinterpret_cast<void*>(memory->address());
  if (status.ok())
    status = communicator.all_reduce(at, at, count, DataType::int32, ReduceOperation::sum,
                                     {.stream = stream.handle()});
  if (status.ok()) status = stream.synchronize();
  if (status.ok()) status = communicator.failure();
  if (status.ok())
    status = device->copy(sys::cuda::address_of(data.data()), memory->address(), bytes);
  if (!status.ok()) return status.error().describe();
  const int ranks = communicator.size();
  for (const std::int32_t element : data)
    if (element != ranks * (ranks + 1) / 2) return str("wrong: ", element);
  return {};
}

TEST_P(GpuProcesses, SumsAreRight) {
  const auto all = run_forked(
      GetParam(),
      [](Communicator& communicator) -> std::string {
        const TestStream stream(device_of(communicator.rank()));
        for (const std::int64_t count : {1, 1000, 100'000})
          for (int call = 0; call < 3; ++call)
            if (auto wrong = reduce_on_device(communicator, stream, count); !wrong.empty())
              return str("count ", count, ": ", wrong);
        return {};
      },
      use_device);
  for (const Ended& ended : all) {
    EXPECT_EQ(ended.said, "");
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
  }
}

// Most likely the others' kernels wait by then, or the others have long made no call.
constexpr auto before_the_end = std::chrono::milliseconds(300);

void expect_all_name_the_last(const std::vector<Ended>& all) {
  const std::size_t last = all.size() - 1;
  for (std::size_t rank = 0; rank < last; ++rank)
    EXPECT_TRUE(all[rank].said.find(str("rank ", last)) != std::string::npos &&
                all[rank].said.find("timeout") == std::string::npos &&
                all[rank].said.find("at its deadline") == std::string::npos)
        << "rank " << rank << " said: " << all[rank].said;
  EXPECT_EQ(all[last].signal, SIGKILL);
}

// The last rank is killed while kernels of the others wait for it.
TEST_P(GpuProcesses, SurvivorsSoonNameTheRankThatWasKilled) {
  const auto all = run_forked(
      GetParam(),
      [](Communicator& communicator) -> std::string {
        const TestStream stream(device_of(communicator.rank()));
        if (auto wrong = reduce_on_device(communicator, stream, 1000); !wrong.empty())
          return "before: " + wrong;
        if (communicator.rank() == communicator.size() - 1) {
          std::this_thread::sleep_for(before_the_end);
          kill(getpid(), SIGKILL);
        }
        const auto begin = std::chrono::steady_clock::now();
        const std::string said = reduce_on_device(communicator, stream, 1000);
        const auto took = std::chrono::steady_clock::now() - begin;
        return took < deadline_of_calls ? said : "at its deadline: " + said;
      },
      use_device);
  expect_all_name_the_last(all);
}

// Nothing is on the streams of the others.
TEST_P(GpuProcesses, SurvivorsThatMakeNoCallNameTheRankThatWasKilled) {
  const auto all = run_forked(
      GetParam(),
      [](Communicator& communicator) -> std::string {
        const TestStream stream(device_of(communicator.rank()));
        if (auto wrong = reduce_on_device(communicator, stream, 1000); !wrong.empty())
          return "before: " + wrong;
        std::this_thread::sleep_for(before_the_end);
        if (communicator.rank() == communicator.size() - 1) kill(getpid(), SIGKILL);
        eventually([&] { return !communicator.failure().ok(); });
        const Status status = communicator.failure();
        return status.ok() ? "it works" : status.error().describe();
      },
      use_device);
  expect_all_name_the_last(all);
}

}  // namespace
}  // namespace unisono::test
