// Windows, puts and signals between ranks of one process; tests/python/test_nccl_windows.py has
// ranks of several.

#include <numeric>
#include <thread>

#include "nccl/ranks.h"

namespace unisono {
namespace {

using test::last_error;
using test::NcclRanks;
using test::settled;

bool says(const char* words) { return last_error().find(words) != std::string::npos; }

// Each rank's memory, and its window.
struct Windows {
  explicit Windows(const NcclRanks& ranks, std::size_t count = 1000)
      : memory(static_cast<std::size_t>(ranks.size()), std::vector<int>(count, -1)),
        windows(memory.size()) {
    EXPECT_NCCL(ranks.together([&](int rank, ncclComm_t comm) {
      const auto own = static_cast<std::size_t>(rank);
      return ncclCommWindowRegister(comm, memory[own].data(), count * sizeof(int), &windows[own],
                                    1);
    }));
  }
  std::vector<std::vector<int>> memory;
  std::vector<ncclWindow_t> windows;
};

TEST(NcclWindows, EveryRankReachesEveryRanksMemory) {
  const NcclRanks ranks(3);
  Windows all(ranks);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    void* pointer = nullptr;
    ASSERT_NCCL(ncclWinGetUserPtr(ranks[static_cast<int>(rank)], all.windows[rank], &pointer));
    EXPECT_EQ(pointer, all.memory[rank].data());
    for (int peer = 0; peer < 3; ++peer) {
      ASSERT_NCCL(ncclGetPeerDevicePointer(all.windows[rank], 8, peer, &pointer));
      EXPECT_EQ(pointer, &all.memory[static_cast<std::size_t>(peer)][2]);
    }
    ASSERT_NCCL(ncclGetLsaDevicePointer(all.windows[rank], 4, 0, &pointer));
    EXPECT_EQ(pointer, &all.memory[rank][1]);
  }
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_NCCL(ncclCommWindowDeregister(ranks[static_cast<int>(rank)], all.windows[rank]));
}

TEST(NcclWindows, APutIsThereWhenItsSignalIs) {
  const NcclRanks ranks(3);
  Windows all(ranks);
  constexpr std::size_t count = 100;
  const auto results = ranks.apart([&](int rank, ncclComm_t comm) {
    const auto own = static_cast<std::size_t>(rank);
    std::vector<int> data(count);
    // Round the ring, several times: a wait takes the signals of its round alone.
    for (int round = 0; round < 20; ++round) {
      std::iota(data.begin(), data.end(), 1000 * round + rank);
      const int next = (rank + 1) % 3, last = (rank + 2) % 3;
      EXPECT_NCCL(ncclPutSignal(data.data(), count, ncclInt32, next, all.windows[own],
                                own * count * sizeof(int), 0, 0, 0, comm, nullptr));
      ncclWaitSignalDesc_t wait{1, last, 0, 0};
      EXPECT_NCCL(ncclWaitSignal(1, &wait, comm, nullptr));
      const int* got = &all.memory[own][static_cast<std::size_t>(last) * count];
      EXPECT_EQ(got[0], 1000 * round + last);
      EXPECT_EQ(got[count - 1], 1000 * round + last + static_cast<int>(count) - 1);
      // Nobody overwrites what is still read.
      EXPECT_NCCL(ncclSignal(last, 0, 0, 0, comm, nullptr));
      wait = {1, next, 0, 0};
      EXPECT_NCCL(ncclWaitSignal(1, &wait, comm, nullptr));
    }
    return ncclSuccess;
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(3, ncclSuccess));
}

TEST(NcclWindows, AGroupOfOneThreadPutsBeforeItWaits) {
  for (const bool is_blocking : {true, false}) {
    const NcclRanks ranks(2, is_blocking);
    std::vector<std::vector<int>> memory(2, std::vector<int>(4, -1));
    std::vector<ncclWindow_t> windows(2);
    ASSERT_NCCL(ncclGroupStart());
    for (int rank = 0; rank < 2; ++rank) {
      const auto own = static_cast<std::size_t>(rank);
      ASSERT_NCCL(ncclCommWindowRegister(ranks[rank], memory[own].data(), 16, &windows[own], 0));
    }
    EXPECT_EQ(ncclGroupEnd(), is_blocking ? ncclSuccess : ncclInProgress) << last_error();
    for (int rank = 0; rank < 2; ++rank) ASSERT_EQ(settled(ranks[rank]), ncclSuccess);
    const int values[] = {10, 11};
    ASSERT_NCCL(ncclGroupStart());
    for (int rank = 0; rank < 2; ++rank) {
      const auto own = static_cast<std::size_t>(rank);
      ncclWaitSignalDesc_t wait{2, 1 - rank, 0, 0};
      EXPECT_NCCL(ncclWaitSignal(1, &wait, ranks[rank], nullptr));
      EXPECT_NCCL(ncclPutSignal(&values[own], 1, ncclInt32, 1 - rank, windows[own], 12, 0, 0, 0,
                                ranks[rank], nullptr));
      EXPECT_NCCL(ncclSignal(1 - rank, 0, 0, 0, ranks[rank], nullptr));
    }
    const ncclResult_t ended = ncclGroupEnd();
    EXPECT_TRUE(ended == ncclSuccess || (!is_blocking && ended == ncclInProgress)) << last_error();
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(settled(ranks[rank]), ncclSuccess);
      EXPECT_EQ(memory[static_cast<std::size_t>(rank)][3], 11 - rank);
    }
  }
}

TEST(NcclWindows, SignalsOfContextsAndNumbersAreApart) {
  test::use_host_memory();
  ncclConfig_t config = test::make_config(1);
  config.numRmaCtx = 2;
  config.numRmaSig = 3;
  ncclComm_t comm = nullptr;
  ASSERT_NCCL(ncclCommInitRankConfig(&comm, 1, test::make_id(), 0, &config));
  EXPECT_NCCL(ncclSignal(0, 2, 1, 0, comm, nullptr));
  EXPECT_NCCL(ncclSignal(0, 2, 1, 0, comm, nullptr));
  ncclWaitSignalDesc_t wait{2, 0, 2, 1};
  EXPECT_NCCL(ncclWaitSignal(1, &wait, comm, nullptr));
  EXPECT_EQ(ncclSignal(0, 3, 0, 0, comm, nullptr), ncclInvalidArgument);
  EXPECT_TRUE(says("numRmaSig")) << last_error();
  EXPECT_EQ(ncclSignal(0, 0, 2, 0, comm, nullptr), ncclInvalidArgument);
  EXPECT_TRUE(says("numRmaCtx")) << last_error();
  EXPECT_NCCL(ncclCommDestroy(comm));
  config.numRmaCtx = 65;
  config.numRmaSig = 1;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, test::make_id(), 0, &config), ncclInvalidArgument);
  EXPECT_TRUE(says("64 signals")) << last_error();
}

TEST(NcclWindows, BadArgumentsAreNamed) {
  const NcclRanks ranks(2);
  Windows all(ranks, 4);
  const int value = 1;
  const auto put = [&](int peer, std::size_t offset, unsigned flags) {
    return ncclPutSignal(&value, 1, ncclInt32, peer, all.windows[0], offset, 0, 0, flags, ranks[0],
                         nullptr);
  };
  EXPECT_EQ(put(2, 0, 0), ncclInvalidArgument);
  EXPECT_TRUE(says("the peer is 2; it must be 0 to 1")) << last_error();
  EXPECT_EQ(put(1, 13, 0), ncclInvalidArgument);
  EXPECT_TRUE(says("bytes 13 to 17 of the window of rank 1, which has 16 bytes")) << last_error();
  EXPECT_EQ(put(1, 0, 4), ncclInvalidArgument);
  EXPECT_TRUE(says("the flags are 4")) << last_error();
  EXPECT_EQ(ncclPutSignal(&value, 1, ncclInt32, 1, all.windows[1], 0, 0, 0, 0, ranks[0], nullptr),
            ncclInvalidArgument);
  EXPECT_TRUE(says("not a window of this communicator")) << last_error();
  ncclWaitSignalDesc_t wait{-1, 1, 0, 0};
  EXPECT_EQ(ncclWaitSignal(1, &wait, ranks[0], nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclWaitSignal(1, nullptr, ranks[0], nullptr), ncclInvalidArgument);
  ncclWindow_t window = nullptr;
  int memory = 0;
  EXPECT_EQ(ncclCommWindowRegister(ranks[0], &memory, 4, &window, 4), ncclInvalidUsage);
  EXPECT_TRUE(says("GIN")) << last_error();
  EXPECT_EQ(ncclCommWindowRegister(ranks[0], &memory, 4, &window, 8), ncclInvalidUsage);
  EXPECT_TRUE(says("CFT")) << last_error();
  EXPECT_EQ(ncclCommWindowRegister(ranks[0], &memory, 4, &window, 0x41), ncclInvalidArgument);
  EXPECT_TRUE(says("has no flags 64")) << last_error();
  void* pointer = nullptr;
  EXPECT_EQ(ncclGetPeerDevicePointer(all.windows[0], 17, 1, &pointer), ncclInvalidArgument);
  EXPECT_EQ(ncclGetPeerDevicePointer(all.windows[0], 0, 2, &pointer), ncclInvalidArgument);
  EXPECT_EQ(ncclGetLsaDevicePointer(all.windows[0], 0, 1, &pointer), ncclInvalidArgument);
  EXPECT_NCCL(ncclCommWindowDeregister(ranks[0], all.windows[0]));
  EXPECT_EQ(ncclCommWindowDeregister(ranks[0], all.windows[0]), ncclInvalidArgument);
  EXPECT_EQ(put(1, 0, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommWindowDeregister(ranks[1], nullptr), ncclSuccess);
}

TEST(NcclWindows, AWindowGoesWithItsCommunicator) {
  NcclRanks ranks(1);
  Windows all(ranks);
  void* pointer = nullptr;
  EXPECT_NCCL(ncclGetPeerDevicePointer(all.windows[0], 0, 0, &pointer));
  EXPECT_NCCL(ncclCommDestroy(ranks.release(0)));
  EXPECT_EQ(ncclGetPeerDevicePointer(all.windows[0], 0, 0, &pointer), ncclInvalidArgument);
}

}  // namespace
}  // namespace unisono
