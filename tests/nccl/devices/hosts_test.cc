// NCCL's interface on GPUs of several hosts: processes whose host names are set apart.

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>

#include "base/str.h"
#include "nccl/ranks.h"
#include "support/emulated_device.h"
#include "support/forked_ranks.h"
#include "support/gpu_cluster.h"

namespace unisono {
namespace {

using sys::cuda::Current;
using sys::cuda::Device;
using test::TestStream;

// What rank 0 tells the others, as an MPI program does by a broadcast.
struct Told {
  std::atomic<bool> is_there{false};
  ncclUniqueId id;
};

// A rank on its own device and host.
class Rank {
 public:
  Rank(int rank, int ranks, Told& told)
      : rank_(rank), ranks_(ranks), device_(Device::open(rank).value()), current_(*device_) {
    setenv("UNISONO_INTERFACE", "127.0.0.1", 0);
    test::move_to_host(ranks == 2 ? rank : rank / 2);
    stream_ = std::make_unique<TestStream>(device_);
    if (rank == 0) {
      told.id = test::make_id();
      told.is_there.store(true, std::memory_order_release);
    }
    while (!told.is_there.load(std::memory_order_acquire)) std::this_thread::yield();
    check(ncclCommInitRank(&comm_, ranks, told.id, rank), "init");
  }
  ~Rank() {
    if (comm_ != nullptr) ncclCommDestroy(comm_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Makes `call`, from a buffer in which each rank has `inputs` times `count` elements of its own
  // to one of `outputs` times as many, and holds it against what `wanted` says of each element.
  void run(const char* name, std::size_t count, std::size_t inputs, std::size_t outputs,
           const std::function<ncclResult_t(const void*, void*)>& call,
           const std::function<long(std::size_t)>& wanted) {
    if (!said_.empty()) return;
    std::vector<std::int64_t> from(inputs * count);
    std::vector<std::int64_t> to(outputs * count, -1);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = value(rank_, i);
    void* input = nullptr;
    void* output = nullptr;
    check(ncclMemAlloc(&input, from.size() * sizeof(long)), name);
    check(ncclMemAlloc(&output, to.size() * sizeof(long)), name);
    copy(input, from.data(), from.size() * sizeof(long));
    copy(output, to.data(), to.size() * sizeof(long));
    check(call(input, output), name);
    if (!stream_->synchronize().ok()) fail(name, "its stream failed");
    copy(to.data(), output, to.size() * sizeof(long));
    for (std::size_t i = 0; i < to.size() && said_.empty(); ++i)
      if (to[i] != wanted(i))
        fail(name, str("element ", i, " of ", to.size(), " is ", to[i], ", not ", wanted(i)));
    check(ncclMemFree(input), name);
    check(ncclMemFree(output), name);
  }

  void run_all(std::size_t count) {
    const auto total = [&](std::size_t i) {
      long all = 0;
      for (int rank = 0; rank < ranks_; ++rank) all += value(rank, i);
      return all;
    };
    const int root = ranks_ - 1;
    const auto ranks = static_cast<std::size_t>(ranks_);
    const auto own = static_cast<std::size_t>(rank_) * count;
    run(
        "ncclAllReduce", count, 1, 1,
        [&](const void* from, void* to) {
          return ncclAllReduce(from, to, count, ncclInt64, ncclSum, comm_, stream());
        },
        total);
    run(
        "ncclReduce", count, 1, 1,
        [&](const void* from, void* to) {
          return ncclReduce(from, to, count, ncclInt64, ncclSum, root, comm_, stream());
        },
        [&](std::size_t i) { return rank_ == root ? total(i) : -1; });
    run(
        "ncclBroadcast", count, 1, 1,
        [&](const void* from, void* to) {
          return ncclBroadcast(from, to, count, ncclInt64, root, comm_, stream());
        },
        [&](std::size_t i) { return value(root, i); });
    run(
        "ncclAllGather", count, 1, ranks,
        [&](const void* from, void* to) {
          return ncclAllGather(from, to, count, ncclInt64, comm_, stream());
        },
        [&](std::size_t i) { return value(static_cast<int>(i / count), i % count); });
    run(
        "ncclReduceScatter", count, ranks, 1,
        [&](const void* from, void* to) {
          return ncclReduceScatter(from, to, count, ncclInt64, ncclSum, comm_, stream());
        },
        [&](std::size_t i) { return total(own + i); });
    run(
        "ncclAlltoAll", count, ranks, ranks,
        [&](const void* from, void* to) {
          return ncclAlltoAll(from, to, count, ncclInt64, comm_, stream());
        },
        [&](std::size_t i) { return value(static_cast<int>(i / count), own + i % count); });
    const int next = (rank_ + 1) % ranks_;
    const int before = (rank_ + ranks_ - 1) % ranks_;
    run(
        "ncclSend and ncclRecv", count, 1, 1,
        [&](const void* from, void* to) {
          check(ncclGroupStart(), "ncclGroupStart");
          check(ncclSend(from, count, ncclInt64, next, comm_, stream()), "ncclSend");
          check(ncclRecv(to, count, ncclInt64, before, comm_, stream()), "ncclRecv");
          return ncclGroupEnd();
        },
        [&](std::size_t i) { return value(before, i); });
  }

  const std::string& said() const { return said_; }

 private:
  static long value(int rank, std::size_t i) {
    return static_cast<long>(i * 7919 % 100'003) + 1'000'000L * rank;
  }
  cudaStream_t stream() const { return reinterpret_cast<cudaStream_t>(stream_->handle()); }
  void fail(const char* what, const std::string& why) {
    if (said_.empty()) said_ = str(what, ": ", why);
  }
  void check(ncclResult_t result, const char* what) {
    if (result != ncclSuccess) fail(what, test::last_error());
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    if (!device_->copy(sys::cuda::address_of(to), sys::cuda::address_of(from), bytes).ok())
      fail("copy", str(bytes, " bytes"));
  }

  int rank_;
  int ranks_;
  std::shared_ptr<const Device> device_;
  Current current_;
  std::unique_ptr<TestStream> stream_;
  ncclComm_t comm_ = nullptr;
  std::string said_;
};

class NcclHosts : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (test::EmulatedDevice::find() == nullptr)
      GTEST_SKIP() << "a forked process cannot use real GPUs";
    if (geteuid() != 0) GTEST_SKIP() << "only root can set host names apart";
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclHosts, testing::Values(2, 3, 4));

TEST_P(NcclHosts, CollectivesAndMessagesAreStaged) {
  void* const shared =
      mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Told& told = *new (shared) Told;
  const auto all = test::run_processes(GetParam(), [&](int number) {
    Rank rank(number, GetParam(), told);
    for (const std::size_t count : {1U, 4099U, 70'001U}) rank.run_all(count);
    return rank.said();
  });
  for (const test::Ended& ended : all) {
    EXPECT_EQ(ended.said, "");
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
  }
  munmap(shared, sizeof(Told));
}

}  // namespace
}  // namespace unisono
