// Splits, shrinks, and the ends of communicators.

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "nccl/ranks.h"

namespace unisono {
namespace {

using test::last_error;
using test::NcclRanks;
using test::settled;
using test::sum;

bool says(const char* words) { return last_error().find(words) != std::string::npos; }

TEST(NcclLifetime, ASplitByColorAndKeyInOneGroup) {
  const NcclRanks ranks(4);
  std::vector<ncclComm_t> halves(4);
  const auto split = [&](int rank, ncclComm_t comm) {
    return ncclCommSplit(comm, rank == 3 ? -1 : rank % 2, -rank,
                         &halves[static_cast<std::size_t>(rank)], nullptr);
  };
  ASSERT_NCCL(ranks.together(split));
  EXPECT_EQ(halves[3], nullptr);
  int rank = -1, count = -1;
  EXPECT_NCCL(ncclCommUserRank(halves[0], &rank));
  EXPECT_NCCL(ncclCommCount(halves[0], &count));
  EXPECT_EQ(rank, 1);  // the keys turn the order round
  EXPECT_EQ(count, 2);
  EXPECT_NCCL(ncclCommCount(halves[1], &count));
  EXPECT_EQ(count, 1);
  for (ncclComm_t comm : halves) EXPECT_NCCL(ncclCommDestroy(comm));
  EXPECT_EQ(ncclCommSplit(ranks[0], -2, 0, &halves[0], nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommSplit(ranks[0], 0, 0, nullptr, nullptr), ncclInvalidArgument);
}

TEST(NcclLifetime, ASplitWithoutBlockingFillsTheHandleInLater) {
  const NcclRanks ranks(2, false);
  std::vector<ncclComm_t> children(2);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(
        ncclCommSplit(ranks[rank], 0, rank, &children[static_cast<std::size_t>(rank)], nullptr),
        ncclInProgress);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(settled(ranks[rank]), ncclSuccess);
  std::vector<float> values(2, 1), sums(2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_NE(children[rank], nullptr);
    const ncclResult_t result =
        ncclAllReduce(&values[rank], &sums[rank], 1, ncclFloat32, ncclSum, children[rank], nullptr);
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << last_error();
  }
  for (ncclComm_t child : children) EXPECT_EQ(settled(child), ncclSuccess);
  EXPECT_EQ(sums, std::vector<float>(2, 2));
  for (ncclComm_t child : children) EXPECT_NCCL(ncclCommDestroy(child));
}

TEST(NcclLifetime, AShrinkLeavesOutWhoDoesNotTakePart) {
  const NcclRanks ranks(4);
  std::vector<ncclComm_t> smaller(4);
  const auto sums = ranks.apart([&](int rank, ncclComm_t comm) {
    if (rank == 1) return ncclSuccess;
    int excluded[] = {1};
    auto& child = smaller[static_cast<std::size_t>(rank)];
    const ncclResult_t result = ncclCommShrink(comm, excluded, 1, &child, nullptr, 0);
    EXPECT_EQ(sum(child, rank), 5);
    return result;
  });
  EXPECT_EQ(sums, std::vector<ncclResult_t>(4, ncclSuccess)) << last_error();
  for (ncclComm_t comm : smaller) EXPECT_NCCL(ncclCommDestroy(comm));
  // The parent still works, for all.
  const auto again = ranks.apart(
      [](int, ncclComm_t comm) { return sum(comm, 1) == 4 ? ncclSuccess : ncclInternalError; });
  EXPECT_EQ(again, std::vector<ncclResult_t>(4, ncclSuccess)) << last_error();
  int self[] = {0};
  EXPECT_EQ(ncclCommShrink(ranks[0], self, 1, smaller.data(), nullptr, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommShrink(ranks[0], self, 0, smaller.data(), nullptr, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommShrink(ranks[1], self, 1, smaller.data(), nullptr, 8), ncclInvalidArgument);
}

TEST(NcclLifetime, AShrinkGetsRanksOutOfACallThatCannotEnd) {
  NcclRanks ranks(3);
  std::atomic<int> waiting{0};
  const auto results = ranks.apart([&](int rank, ncclComm_t comm) {
    if (rank == 2) return ncclSuccess;  // never comes to the call
    std::thread stuck([&] {
      ++waiting;
      EXPECT_EQ(sum(comm, rank), -1);
    });
    while (waiting.load() < 2) std::this_thread::yield();
    // Most likely both are inside by then; a call that begins later fails as well.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    int excluded[] = {2};
    ncclComm_t child = nullptr;
    ncclResult_t result = ncclCommShrink(comm, excluded, 1, &child, nullptr, 1);
    stuck.join();
    if (result == ncclSuccess && sum(child, rank + 1) != 3) result = ncclInternalError;
    EXPECT_NCCL(ncclCommDestroy(child));
    return result;
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(3, ncclSuccess)) << last_error();
  for (int rank = 0; rank < 3; ++rank) EXPECT_NCCL(ncclCommAbort(ranks.release(rank)));
}

TEST(NcclLifetime, ARevokedCommunicatorSplitsAfresh) {
  const NcclRanks ranks(2);
  for (int rank = 0; rank < 2; ++rank) EXPECT_NCCL(ncclCommRevoke(ranks[rank], 0));
  EXPECT_EQ(settled(ranks[0]), ncclSuccess);
  EXPECT_EQ(sum(ranks[0], 1), -1);
  EXPECT_TRUE(says("revoked")) << last_error();
  EXPECT_EQ(ncclCommRevoke(ranks[0], 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommFinalize(ranks[0]), ncclInvalidUsage);
  const auto results = ranks.apart([](int rank, ncclComm_t comm) {
    ncclComm_t fresh = nullptr;
    const ncclResult_t result = ncclCommSplit(comm, 0, rank, &fresh, nullptr);
    EXPECT_EQ(sum(fresh, rank + 1), 3);
    EXPECT_NCCL(ncclCommDestroy(fresh));
    return result;
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(2, ncclSuccess)) << last_error();
}

TEST(NcclLifetime, AnAbortEndsACallOfAnotherThreadHereAndElsewhere) {
  NcclRanks ranks(3);
  std::vector<ncclResult_t> results(2);
  std::vector<std::thread> threads;
  std::latch calling(3);
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank, comm = ranks[rank]] {
      float value = 1;
      calling.arrive_and_wait();
      results[static_cast<std::size_t>(rank)] =
          ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr);
    });
  calling.arrive_and_wait();
  // Most likely both are inside by then; a call that begins later ends in the same error.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_NCCL(ncclCommAbort(ranks.release(0)));
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(results[0], ncclSuccess);
  EXPECT_EQ(results[1], ncclRemoteError);
  ncclResult_t state = ncclSuccess;
  EXPECT_NCCL(ncclCommGetAsyncError(ranks[1], &state));
  EXPECT_EQ(state, ncclRemoteError);
  EXPECT_NE(std::string(ncclGetLastError(ranks[1])).find("abort"), std::string::npos)
      << ncclGetLastError(ranks[1]);
  for (int rank : {1, 2}) EXPECT_NCCL(ncclCommAbort(ranks.release(rank)));
}

TEST(NcclLifetime, AHandleThatIsGoneIsAnErrorEverywhere) {
  NcclRanks ranks(1);
  ncclComm_t gone = ranks.release(0);
  EXPECT_NCCL(ncclCommFinalize(gone));
  EXPECT_EQ(ncclCommFinalize(gone), ncclInvalidUsage);
  float value = 1;
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, gone, nullptr),
            ncclInvalidUsage);
  EXPECT_TRUE(says("finalized")) << last_error();
  EXPECT_NCCL(ncclCommDestroy(gone));
  int number = 0;
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommDestroy(gone), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCount(gone, &number), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGetAsyncError(gone, &state), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, gone, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclCommCount(nullptr, &number), ncclInvalidArgument);
  EXPECT_TRUE(says("ncclCommCount: the communicator is null")) << last_error();
  for (const auto end : {ncclCommFinalize, ncclCommDestroy, ncclCommAbort})
    EXPECT_NCCL(end(nullptr));
}

TEST(NcclLifetime, RegistrationsAreKeptAndGivenBackOnce) {
  const NcclRanks ranks(1);
  void* memory = nullptr;
  ASSERT_NCCL(ncclMemAlloc(&memory, 1 << 20));
  void* handle = nullptr;
  ncclWindow_t window = nullptr;
  EXPECT_NCCL(ncclCommRegister(ranks[0], memory, 1 << 20, &handle));
  EXPECT_NCCL(ncclCommWindowRegister(ranks[0], memory, 1 << 20, &window, 1));
  EXPECT_NE(static_cast<void*>(window), handle);
  EXPECT_NCCL(ncclCommDeregister(ranks[0], handle));
  EXPECT_EQ(ncclCommDeregister(ranks[0], handle), ncclInvalidArgument);
  EXPECT_NCCL(ncclCommWindowDeregister(ranks[0], window));
  EXPECT_NCCL(ncclMemFree(memory));
  EXPECT_NCCL(ncclMemFree(nullptr));
  EXPECT_EQ(ncclMemAlloc(nullptr, 1), ncclInvalidArgument);
  EXPECT_EQ(ncclTeamWorld(ranks[0]).nRanks, 1);
}

}  // namespace
}  // namespace unisono
