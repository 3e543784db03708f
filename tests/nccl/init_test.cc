// Communicators made, and what is wrong with them.

#include <cstring>
#include <random>
#include <thread>

#include "nccl/ranks.h"

namespace unisono {
namespace {

using test::last_error;
using test::make_config;
using test::make_id;
using test::NcclRanks;
using test::settled;
using test::sum;

class NcclInit : public testing::Test {
 protected:
  static void SetUpTestSuite() { test::use_host_memory(); }
};

bool says(const char* words) { return last_error().find(words) != std::string::npos; }

TEST_F(NcclInit, RanksOfOneThreadMeetInAGroup) {
  const NcclRanks ranks(4);
  for (int rank = 0; rank < 4; ++rank) {
    int own = -1, count = -1, device = -1;
    EXPECT_NCCL(ncclCommUserRank(ranks[rank], &own));
    EXPECT_NCCL(ncclCommCount(ranks[rank], &count));
    EXPECT_NCCL(ncclCommCuDevice(ranks[rank], &device));
    EXPECT_EQ(own, rank);
    EXPECT_EQ(count, 4);
    EXPECT_EQ(device, 0);
  }
}

TEST_F(NcclInit, RanksOfSeveralThreadsMeet) {
  const ncclUniqueId id = make_id();
  std::vector<long long> sums(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      EXPECT_NCCL(ncclCommInitRank(&comm, 3, id, rank));
      sums[static_cast<std::size_t>(rank)] = sum(comm, rank + 1);
      EXPECT_NCCL(ncclCommFinalize(comm));
      EXPECT_NCCL(ncclCommDestroy(comm));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, std::vector<long long>(3, 6));
}

TEST_F(NcclInit, AllDevicesOfAProcessAndScalableInit) {
  ncclComm_t comms[3] = {};
  ASSERT_NCCL(ncclCommInitAll(comms, 3, nullptr));
  int device = -1;
  EXPECT_NCCL(ncclCommCuDevice(comms[2], &device));
  EXPECT_EQ(device, 2);
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));

  ncclUniqueId ids[2] = {make_id(), make_id()};
  ncclComm_t pair[2] = {};
  ASSERT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_NCCL(ncclCommInitRankScalable(&pair[rank], 2, rank, 2, ids, nullptr));
  EXPECT_NCCL(ncclGroupEnd());
  for (ncclComm_t comm : pair) EXPECT_NCCL(ncclCommDestroy(comm));
  EXPECT_EQ(ncclCommInitRankScalable(&pair[0], 2, 0, 3, ids, nullptr), ncclInvalidArgument);
}

TEST_F(NcclInit, OneRankAloneNeedsNobody) {
  ncclComm_t comm = nullptr;
  ASSERT_NCCL(ncclCommInitRank(&comm, 1, make_id(), 0));
  EXPECT_EQ(sum(comm, 7), 7);
  EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST_F(NcclInit, WithoutBlockingItIsInProgressUntilAllHaveCome) {
  ncclUniqueId id = make_id();
  ncclConfig_t config = make_config(0);
  ncclComm_t first = nullptr, second = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  EXPECT_NCCL(ncclCommGetAsyncError(first, &state));
  EXPECT_EQ(state, ncclInProgress);
  float value = 0;
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, first, nullptr),
            ncclInvalidArgument);
  EXPECT_TRUE(says("in progress")) << last_error();
  ASSERT_EQ(ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclInProgress);
  EXPECT_EQ(settled(first), ncclSuccess);
  EXPECT_EQ(settled(second), ncclSuccess);
  for (ncclComm_t comm : {first, second}) {
    const ncclResult_t result = ncclCommFinalize(comm);
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << last_error();
  }
  for (ncclComm_t comm : {first, second}) {
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_NCCL(ncclCommDestroy(comm));
  }
}

TEST_F(NcclInit, AnAbortedInitLeavesNoHandleAndHangsNobody) {
  ncclConfig_t config = make_config(0);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, make_id(), 0, &config), ncclInProgress);
  EXPECT_NCCL(ncclCommAbort(comm));
  EXPECT_EQ(ncclCommAbort(comm), ncclInvalidArgument);
  EXPECT_TRUE(says("destroyed")) << last_error();
}

TEST_F(NcclInit, BadArgumentsAreNamed) {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 2, make_id(), 2), ncclInvalidArgument);
  EXPECT_TRUE(says("the rank is 2; it must be 0 to 1")) << last_error();
  EXPECT_EQ(ncclCommInitRank(&comm, 0, make_id(), 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, make_id(), 0), ncclInvalidArgument);
  ncclUniqueId id{};
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclInvalidArgument);
  EXPECT_TRUE(says("Unisono's ncclGetUniqueId")) << last_error();
  id = make_id();
  std::memset(id.internal + 8, 'x', sizeof(id.internal) - 8);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclInvalidArgument);
  EXPECT_TRUE(says("damaged")) << last_error();
  EXPECT_EQ(ncclGetUniqueId(nullptr), ncclInvalidArgument);
}

TEST_F(NcclInit, BytesThatAreNoIdAreRefused) {
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  for (int round = 0; round < 200; ++round) {
    ncclUniqueId id = make_id();
    // Behind the magic: the scheme, so that no address is left to wait for.
    for (int i = 8; i < 15; ++i) id.internal[i] = static_cast<char>(random());
    const std::size_t more = random() % (sizeof(id.internal) - 15);
    for (std::size_t i = 15; i < 15 + more; ++i) id.internal[i] = static_cast<char>(random());
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 1), ncclInvalidArgument) << last_error();
    EXPECT_NCCL(ncclCommAbort(comm));
  }
}

TEST_F(NcclInit, OnlyTheInvitedComeIn) {
  ncclUniqueId id = make_id();
  // The secret is the second text: the first one ends with a 0.
  char* secret = id.internal + std::strlen(id.internal) + 1;
  secret[0] = secret[0] == '0' ? '1' : '0';
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 1), ncclInvalidArgument);
  EXPECT_TRUE(says("the invitation of rank 1 is not one of the process")) << last_error();
  EXPECT_NCCL(ncclCommAbort(comm));
}

TEST_F(NcclInit, AUniqueIdServesOnce) {
  const ncclUniqueId id = make_id();
  ncclComm_t comms[2] = {};
  ASSERT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) ASSERT_NCCL(ncclCommInitRank(&comms[rank], 2, id, rank));
  ASSERT_NCCL(ncclGroupEnd());
  ncclComm_t late = nullptr;
  EXPECT_EQ(ncclCommInitRank(&late, 2, id, 1), ncclInvalidArgument);
  EXPECT_TRUE(says("serves one communicator")) << last_error();
  EXPECT_NCCL(ncclCommAbort(late));
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST_F(NcclInit, RanksThatDisagreeOnTheirNumberAreAllTold) {
  const ncclUniqueId id = make_id();
  std::vector<ncclResult_t> results(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      results[static_cast<std::size_t>(rank)] = ncclCommInitRank(&comm, 2 + rank, id, rank);
      EXPECT_TRUE(says("world size differs")) << last_error();
      EXPECT_NCCL(ncclCommAbort(comm));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results, std::vector<ncclResult_t>(2, ncclInvalidArgument));
}

// Nobody's timeout ends this: UNISONO_BOOTSTRAP_TIMEOUT is 2 minutes, and a test has less.
TEST_F(NcclInit, ARankThatFailsBeforeItMeetsTheOthersIsNamedByThem) {
  for (const int absent : {0, 1, 2}) {
    const ncclUniqueId id = make_id();
    std::vector<ncclResult_t> results(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        ncclConfig_t config = make_config(rank == absent ? 2 : 1);
        ncclComm_t comm = nullptr;
        results[static_cast<std::size_t>(rank)] =
            ncclCommInitRankConfig(&comm, 3, id, rank, &config);
        if (comm != nullptr) {
          EXPECT_NCCL(ncclCommAbort(comm));
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(results[static_cast<std::size_t>(rank)],
                rank == absent ? ncclInvalidArgument : ncclRemoteError)
          << "rank " << rank;
  }
}

TEST_F(NcclInit, ARankWhoseGroupFailsIsNamedByTheOthers) {
  const ncclUniqueId id = make_id();
  ncclResult_t result = ncclSuccess;
  std::thread other([&] {
    ncclComm_t comm = nullptr;
    result = ncclCommInitRank(&comm, 2, id, 0);
    EXPECT_TRUE(says("rank 1 cannot join: another call of the same group failed")) << last_error();
    EXPECT_NCCL(ncclCommAbort(comm));
  });
  ncclComm_t comm = nullptr;
  ASSERT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclCommInitRank(&comm, 2, id, 1));
  EXPECT_EQ(ncclCommInitRank(nullptr, 2, id, 1), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  other.join();
  EXPECT_EQ(result, ncclRemoteError);
  EXPECT_NCCL(ncclCommAbort(comm));
}

TEST_F(NcclInit, ConfigurationsOfOlderAndNewerCallersAreRead) {
  ncclComm_t comm = nullptr;
  ncclConfig_t config = make_config(1);
  config.magic = 1;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, make_id(), 0, &config), ncclInvalidArgument);
  EXPECT_TRUE(says("NCCL_CONFIG_INITIALIZER")) << last_error();
  config = make_config(2);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, make_id(), 0, &config), ncclInvalidArgument);
  EXPECT_TRUE(says("blocking is 2")) << last_error();
  config = make_config(1);
  config.minCTAs = 8;
  config.maxCTAs = 4;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, make_id(), 0, &config), ncclInvalidArgument);
  // What a caller of an older version has behind its fields is not looked at.
  config = make_config(1);
  config.version = 21400;
  config.size = offsetof(ncclConfig_t, cgaClusterSize);
  config.minCTAs = -5;
  EXPECT_NCCL(ncclCommInitRankConfig(&comm, 1, make_id(), 0, &config));
  EXPECT_NCCL(ncclCommDestroy(comm));
  // A newer caller's structure is longer.
  struct {
    ncclConfig_t known = make_config(1);
    int more[8] = {77, 77, 77, 77, 77, 77, 77, 77};
  } longer;
  longer.known.size = sizeof(longer);
  longer.known.version = 24000;
  EXPECT_NCCL(ncclCommInitRankConfig(&comm, 1, make_id(), 0, &longer.known));
  EXPECT_NCCL(ncclCommDestroy(comm));
}

}  // namespace
}  // namespace unisono
