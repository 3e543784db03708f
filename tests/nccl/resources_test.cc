// Memory statistics, suspending, growing, properties.

#include <thread>

#include "nccl/ranks.h"

namespace unisono {
namespace {

using test::last_error;
using test::NcclRanks;
using test::settled;
using test::sum;

bool says(const char* words) { return last_error().find(words) != std::string::npos; }

std::uint64_t stat(ncclComm_t comm, ncclCommMemStat_t which) {
  std::uint64_t value = UINT64_MAX;
  EXPECT_NCCL(ncclCommMemStats(comm, which, &value));
  return value;
}

TEST(NcclResources, ASuspendedCommunicatorRefusesCallsUntilItIsResumed) {
  const NcclRanks ranks(2);
  const auto all = [&](ncclResult_t (*call)(ncclComm_t)) {
    return ranks.apart([&](int, ncclComm_t comm) { return call(comm); });
  };
  const std::vector<ncclResult_t> both(2, ncclSuccess);
  const auto add = [](ncclComm_t comm) {
    return sum(comm, 1) == 2 ? ncclSuccess : ncclInternalError;
  };
  EXPECT_EQ(all(add), both) << last_error();
  EXPECT_EQ(all([](ncclComm_t comm) { return ncclCommSuspend(comm, 1); }), both) << last_error();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(stat(ranks[rank], ncclStatGpuMemSuspended), 1U);
    EXPECT_EQ(stat(ranks[rank], ncclStatGpuMemTotal), 0U);
    EXPECT_EQ(settled(ranks[rank]), ncclSuccess) << "to be suspended is no failure";
    EXPECT_EQ(sum(ranks[rank], 1), -1);
    EXPECT_TRUE(says("is suspended on rank")) << last_error();
    EXPECT_EQ(ncclCommSuspend(ranks[rank], 1), ncclInvalidUsage);
  }
  EXPECT_EQ(all(ncclCommResume), both) << last_error();
  EXPECT_EQ(all(add), both) << last_error();
  EXPECT_EQ(stat(ranks[0], ncclStatGpuMemSuspended), 0U);
  EXPECT_EQ(ncclCommResume(ranks[0]), ncclInvalidUsage);
  EXPECT_TRUE(says("not suspended")) << last_error();
  EXPECT_EQ(ncclCommSuspend(ranks[0], 3), ncclInvalidArgument);
  std::uint64_t value = 0;
  EXPECT_EQ(ncclCommMemStats(ranks[0], static_cast<ncclCommMemStat_t>(7), &value),
            ncclInvalidArgument);
  EXPECT_TRUE(says("statistic 7 is unknown")) << last_error();
}

TEST(NcclResources, ACommunicatorGrowsByNewRanks) {
  const NcclRanks old(2);
  ncclUniqueId id{};
  ASSERT_NCCL(ncclCommGetUniqueId(old[1], &id));
  EXPECT_EQ(ncclCommGetUniqueId(old[1], &id), ncclInvalidUsage);
  EXPECT_TRUE(says("has not been used to grow")) << last_error();
  std::vector<ncclComm_t> grown(4);
  std::vector<long long> sums(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      const bool is_new = rank >= 2;
      const auto own = static_cast<std::size_t>(rank);
      EXPECT_NCCL(ncclCommGrow(is_new ? nullptr : old[rank], 4, is_new || rank == 1 ? &id : nullptr,
                               is_new ? rank : -1, &grown[own], nullptr));
      int number = -1;
      EXPECT_NCCL(ncclCommUserRank(grown[own], &number));
      EXPECT_EQ(number, rank);
      sums[own] = sum(grown[own], rank + 1);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, std::vector<long long>(4, 10));
  for (ncclComm_t comm : grown) EXPECT_NCCL(ncclCommDestroy(comm));
  // The old one is as it was, and may grow again.
  EXPECT_EQ(old.apart([](int, ncclComm_t comm) {
    return sum(comm, 1) == 2 ? ncclSuccess : ncclInternalError;
  }),
            std::vector<ncclResult_t>(2, ncclSuccess));
  EXPECT_NCCL(ncclCommGetUniqueId(old[1], &id));
}

TEST(NcclResources, RanksThatGrowDifferentlyAreTold) {
  const NcclRanks old(2);
  std::vector<ncclComm_t> grown(2);
  const auto without = old.apart([&](int rank, ncclComm_t comm) {
    return ncclCommGrow(comm, 3, nullptr, -1, &grown[static_cast<std::size_t>(rank)], nullptr);
  });
  EXPECT_EQ(without, std::vector<ncclResult_t>(2, ncclInvalidArgument));
  EXPECT_TRUE(says("0 ranks of the communicator have given a unique id")) << last_error();
  EXPECT_EQ(ncclCommGrow(old[0], 2, nullptr, -1, &grown[0], nullptr), ncclInvalidArgument);
  EXPECT_TRUE(says("the new number of ranks is 2; it must be more than the 2")) << last_error();
  EXPECT_EQ(ncclCommGrow(old[0], 3, nullptr, 1, &grown[0], nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGrow(nullptr, 3, nullptr, 2, &grown[0], nullptr), ncclInvalidArgument);
  EXPECT_TRUE(says("ncclCommGetUniqueId")) << last_error();
}

TEST(NcclResources, PropertiesFillWhatTheCallerHas) {
  const NcclRanks ranks(2);
  struct {
    ncclCommProperties_t known{};
    int more = 77;
  } newer;
  newer.known.size = sizeof newer;
  newer.known.magic = 0xcafebeef;
  newer.known.version = 24000;
  ASSERT_NCCL(ncclCommQueryProperties(ranks[1], &newer.known));
  EXPECT_EQ(newer.known.rank, 1);
  EXPECT_EQ(newer.known.nRanks, 2);
  EXPECT_EQ(newer.known.nLsaTeams, 2);
  EXPECT_TRUE(newer.known.hostRmaSupport);
  EXPECT_FALSE(newer.known.deviceApiSupport);
  EXPECT_EQ(newer.more, 0);
  // 2.29.2's ends behind the first ginType.
  ncclCommProperties_t older{};
  older.size = 40;
  older.magic = 0xcafebeef;
  older.version = 22902;
  older.nLsaTeams = 55;
  ASSERT_NCCL(ncclCommQueryProperties(ranks[0], &older));
  EXPECT_EQ(older.nRanks, 2);
  EXPECT_EQ(older.nLsaTeams, 55);
  older.magic = 1;
  EXPECT_EQ(ncclCommQueryProperties(ranks[0], &older), ncclInvalidArgument);
}

}  // namespace
}  // namespace unisono
