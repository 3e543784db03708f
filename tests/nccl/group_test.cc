// Groups: nesting, several communicators of one thread, collectives and messages together, errors.

#include <numeric>

#include "nccl/ranks.h"

namespace unisono {
namespace {

using test::last_error;
using test::NcclRanks;
using test::settled;

bool says(const char* words) { return last_error().find(words) != std::string::npos; }

TEST(NcclGroup, NestedGroupsRunWithTheOutermost) {
  const NcclRanks ranks(3);
  std::vector<float> values{1, 2, 3}, sums(3, -1);
  ASSERT_NCCL(ncclGroupStart());
  ASSERT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < 3; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    EXPECT_NCCL(ncclAllReduce(&values[i], &sums[i], 1, ncclFloat32, ncclSum, ranks[rank], nullptr));
  }
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(sums, std::vector<float>(3, -1));
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(sums, std::vector<float>(3, 6));
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclGroupEnd());
}

TEST(NcclGroup, AnEndWithoutAStartIsTold) {
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_TRUE(says("without ncclGroupStart")) << last_error();
  ncclSimInfo_t info{sizeof(info), 0x74685283, 22809, -1};
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidUsage);
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidUsage);
  EXPECT_TRUE(says("no estimate")) << last_error();
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
}

TEST(NcclGroup, TheFirstErrorIsTheGroupsAndNothingRuns) {
  const NcclRanks ranks(2);
  float value = 1, sum = -1;
  ASSERT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclAllReduce(&value, &sum, 1, ncclFloat32, ncclSum, ranks[0], nullptr));
  EXPECT_EQ(ncclBroadcast(&value, &sum, 1, ncclFloat32, 9, ranks[0], nullptr), ncclInvalidArgument);
  EXPECT_TRUE(says("ncclBroadcast: the root is 9; it must be 0 to 1")) << last_error();
  EXPECT_EQ(ncclCommFinalize(reinterpret_cast<ncclComm_t>(&value)), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(sum, -1);
  // The next group is a new one.
  EXPECT_NCCL(ranks.together([&](int, ncclComm_t comm) {
    return ncclAllReduce(&value, &value, 0, ncclFloat32, ncclSum, comm, nullptr);
  }));
}

TEST(NcclGroup, BlockingAndNonBlockingDoNotMix) {
  const NcclRanks blocking(1), other(1, false);
  float value = 1;
  ASSERT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, blocking[0], nullptr));
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, other[0], nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
}

TEST(NcclGroup, EveryPairExchangesLargeMessagesAtOnce) {
  constexpr int ranks_count = 4;
  constexpr std::size_t count = 300'000;
  const NcclRanks ranks(ranks_count);
  std::vector<std::vector<int>> sent(ranks_count), received(ranks_count);
  for (std::size_t rank = 0; rank < ranks_count; ++rank) {
    sent[rank].resize(count * ranks_count);
    std::iota(sent[rank].begin(), sent[rank].end(), static_cast<int>(rank * 10'000'000));
    received[rank].assign(count * ranks_count, -1);
  }
  EXPECT_NCCL(ranks.together([&](int rank, ncclComm_t comm) {
    const auto own = static_cast<std::size_t>(rank);
    for (int peer = 0; peer < ranks_count; ++peer) {
      const std::size_t place = static_cast<std::size_t>(peer) * count;
      EXPECT_NCCL(ncclSend(&sent[own][place], count, ncclInt32, peer, comm, nullptr));
      EXPECT_NCCL(ncclRecv(&received[own][place], count, ncclInt32, peer, comm, nullptr));
    }
    return ncclSuccess;
  }));
  for (std::size_t rank = 0; rank < ranks_count; ++rank)
    for (std::size_t peer = 0; peer < ranks_count; ++peer) {
      EXPECT_EQ(received[rank][peer * count], sent[peer][rank * count]);
      EXPECT_EQ(received[rank][peer * count + count - 1], sent[peer][rank * count + count - 1]);
    }
}

TEST(NcclGroup, CollectivesAndMessagesMeetInAnyOrder) {
  const NcclRanks ranks(2);
  constexpr std::size_t count = 200'000;
  std::vector<std::vector<float>> data(2, std::vector<float>(count, 1)), moved = data;
  const auto results = ranks.apart([&](int rank, ncclComm_t comm) {
    const auto own = static_cast<std::size_t>(rank);
    EXPECT_NCCL(ncclGroupStart());
    const auto reduce = [&] {
      return ncclAllReduce(data[own].data(), data[own].data(), count, ncclFloat32, ncclSum, comm,
                           nullptr);
    };
    if (rank == 0) {
      EXPECT_NCCL(reduce());
      EXPECT_NCCL(ncclSend(moved[0].data(), count, ncclFloat32, 1, comm, nullptr));
    } else {
      EXPECT_NCCL(ncclRecv(moved[1].data(), count, ncclFloat32, 0, comm, nullptr));
      EXPECT_NCCL(reduce());
    }
    return ncclGroupEnd();
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(2, ncclSuccess)) << last_error();
  EXPECT_EQ(data[1], std::vector<float>(count, 2));
  EXPECT_EQ(moved[1], moved[0]);
}

TEST(NcclGroup, SeveralCallsOfEachCommunicatorKeepTheirOrder) {
  const NcclRanks ranks(3);
  std::vector<long long> values{1, 2, 3};
  // Each sum is the next one's input.
  EXPECT_NCCL(ranks.together([&](int rank, ncclComm_t comm) {
    long long* value = &values[static_cast<std::size_t>(rank)];
    for (int step = 0; step < 4; ++step)
      EXPECT_NCCL(ncclAllReduce(value, value, 1, ncclInt64, ncclSum, comm, nullptr));
    return ncclSuccess;
  }));
  EXPECT_EQ(values, std::vector<long long>(3, 6 * 27));
}

TEST(NcclGroup, WithoutBlockingItReturnsBeforeThePeersCome) {
  const NcclRanks ranks(2, false);
  std::vector<float> values{1, 2}, sums(2, -1);
  ASSERT_EQ(ncclAllReduce(&values[0], &sums[0], 1, ncclFloat32, ncclSum, ranks[0], nullptr),
            ncclInProgress);
  EXPECT_EQ(ncclCommDestroy(ranks[0]), ncclInvalidArgument);
  const ncclResult_t second =
      ncclAllReduce(&values[1], &sums[1], 1, ncclFloat32, ncclSum, ranks[1], nullptr);
  EXPECT_TRUE(second == ncclInProgress || second == ncclSuccess) << last_error();
  EXPECT_EQ(settled(ranks[0]), ncclSuccess);
  EXPECT_EQ(settled(ranks[1]), ncclSuccess);
  EXPECT_EQ(sums, std::vector<float>(2, 3));
}

TEST(NcclGroup, ACommunicatorIsDestroyedAfterItsCallsOfTheGroup) {
  NcclRanks ranks(2);
  std::vector<float> values{1, 2};
  EXPECT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) {
    float* value = &values[static_cast<std::size_t>(rank)];
    EXPECT_NCCL(ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, ranks[rank], nullptr));
    EXPECT_NCCL(ncclCommDestroy(ranks.release(rank)));
  }
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(values, std::vector<float>(2, 3));
}

}  // namespace
}  // namespace unisono
