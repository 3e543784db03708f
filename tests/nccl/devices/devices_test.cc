// NCCL's interface on device memory and streams: ranks of one thread, each with a device of its
// own. A program of its own, because tests/nccl takes host memory for devices.

#include <cstdlib>

#include "nccl/ranks.h"
#include "support/gpu_cluster.h"

namespace unisono {
namespace {

using sys::cuda::Current;
using test::last_error;
using test::TestStream;

constexpr int ranks_count = 3;
constexpr std::size_t count = 1000;

class NcclDevices : public testing::Test {
 protected:
  void SetUp() override {
    setenv("UNISONO_INTERFACE", "127.0.0.1", 1);
    std::string why;
    devices_ = test::usable_devices(&why);
    if (devices_.size() < ranks_count) GTEST_SKIP() << "there are no three devices " << why;
    ASSERT_NCCL(ncclCommInitAll(comms_, ranks_count, nullptr));
    for (std::size_t rank = 0; rank < ranks_count; ++rank) {
      const Current current(*devices_[rank]);
      streams_.push_back(std::make_unique<TestStream>(devices_[rank]));
      for (void** memory : {&own_[rank], &from_[rank]})
        ASSERT_NCCL(ncclMemAlloc(memory, count * sizeof(int)));
    }
    each([&](std::size_t rank) {
      return ncclCommWindowRegister(comms_[rank], own_[rank], count * sizeof(int), &windows_[rank],
                                    1);
    });
  }
  void TearDown() override {
    for (std::size_t rank = 0; rank < streams_.size(); ++rank) {
      EXPECT_NCCL(ncclCommDestroy(comms_[rank]));
      EXPECT_NCCL(ncclMemFree(own_[rank]));
      EXPECT_NCCL(ncclMemFree(from_[rank]));
    }
  }
  // One group with `call` for each rank; then what it put on streams is over.
  template <class Call>
  void each(Call call) {
    EXPECT_NCCL(ncclGroupStart());
    for (std::size_t rank = 0; rank < ranks_count; ++rank) EXPECT_NCCL(call(rank));
    EXPECT_NCCL(ncclGroupEnd());
    for (const auto& stream : streams_) EXPECT_TRUE(stream->synchronize().ok());
  }
  cudaStream_t stream(std::size_t rank) const {
    return reinterpret_cast<cudaStream_t>(streams_[rank]->handle());
  }
  void fill(std::size_t rank, int value) {
    const std::vector<int> values(count, value);
    EXPECT_TRUE(devices_[rank]
                    ->upload(sys::cuda::address_of(from_[rank]), values.data(), count * sizeof(int))
                    .ok());
  }
  std::vector<int> read(std::size_t rank, const void* memory) {
    std::vector<int> values(count);
    EXPECT_TRUE(devices_[rank]
                    ->copy(sys::cuda::address_of(values.data()), sys::cuda::address_of(memory),
                           count * sizeof(int))
                    .ok());
    return values;
  }
  std::uint64_t stat(std::size_t rank, ncclCommMemStat_t which) {
    std::uint64_t value = UINT64_MAX;
    EXPECT_NCCL(ncclCommMemStats(comms_[rank], which, &value));
    return value;
  }
  void put_and_wait(int round) {
    each([&](std::size_t rank) {
      const int own = static_cast<int>(rank);
      fill(rank, 10 * round + own);
      EXPECT_NCCL(ncclPutSignal(from_[rank], count, ncclInt32, (own + 1) % ranks_count,
                                windows_[rank], 0, 0, 0, 0, comms_[rank], stream(rank)));
      ncclWaitSignalDesc_t wait{1, (own + 2) % ranks_count, 0, 0};
      return ncclWaitSignal(1, &wait, comms_[rank], stream(rank));
    });
    for (std::size_t rank = 0; rank < ranks_count; ++rank)
      EXPECT_EQ(read(rank, own_[rank]),
                std::vector<int>(count, 10 * round + static_cast<int>(rank + 2) % ranks_count));
  }
  void add_up() {
    each([&](std::size_t rank) {
      fill(rank, static_cast<int>(rank) + 1);
      return ncclAllReduce(from_[rank], from_[rank], count, ncclInt32, ncclSum, comms_[rank],
                           stream(rank));
    });
    for (std::size_t rank = 0; rank < ranks_count; ++rank)
      EXPECT_EQ(read(rank, from_[rank]), std::vector<int>(count, 6));
  }

  std::vector<std::shared_ptr<const sys::cuda::Device>> devices_;
  std::vector<std::unique_ptr<TestStream>> streams_;
  ncclComm_t comms_[ranks_count] = {};
  ncclWindow_t windows_[ranks_count] = {};
  void* own_[ranks_count] = {};
  void* from_[ranks_count] = {};
};

TEST_F(NcclDevices, PutsAreThereBehindTheirSignals) {
  void* pointer = nullptr;
  for (int peer = 0; peer < ranks_count; ++peer) {
    ASSERT_NCCL(ncclGetPeerDevicePointer(windows_[0], 4, peer, &pointer));
    EXPECT_EQ(pointer, static_cast<int*>(own_[peer]) + 1) << "within a process";
  }
  for (int round = 0; round < 3; ++round) put_and_wait(round);
}

TEST_F(NcclDevices, SuspendingGivesBackWhatTheStatisticsSay) {
  add_up();
  for (int round = 0; round < 2; ++round) {
    const std::uint64_t bytes = stat(0, ncclStatGpuMemSuspend);
    EXPECT_GT(bytes, 0U);
    EXPECT_EQ(stat(0, ncclStatGpuMemTotal), bytes + stat(0, ncclStatGpuMemPersist));
    each([&](std::size_t rank) { return ncclCommSuspend(comms_[rank], 1); });
    EXPECT_EQ(stat(0, ncclStatGpuMemSuspended), 1U);
    EXPECT_EQ(stat(0, ncclStatGpuMemTotal), 0U);
    EXPECT_EQ(ncclAllReduce(from_[0], from_[0], 1, ncclInt32, ncclSum, comms_[0], stream(0)),
              ncclInvalidArgument);
    EXPECT_NE(last_error().find("suspended"), std::string::npos) << last_error();
    each([&](std::size_t rank) { return ncclCommResume(comms_[rank]); });
    add_up();
    EXPECT_EQ(stat(0, ncclStatGpuMemTotal), bytes);
  }
  put_and_wait(5);
}

}  // namespace
}  // namespace unisono
