#include "nccl/ranks.h"

#include <chrono>
#include <cstdlib>
#include <thread>

namespace unisono::test {

void use_host_memory() {
  static const bool is_set = [] {
    setenv("UNISONO_NCCL_HOST_MEMORY", "1", 1);
    setenv("UNISONO_INTERFACE", "127.0.0.1", 1);
    return true;
  }();
  static_cast<void>(is_set);
}

std::string last_error() { return ncclGetLastError(nullptr); }

ncclConfig_t make_config(int blocking) {
  ncclConfig_t config{};
  config.size = sizeof(config);
  config.magic = 0xcafebeef;
  config.version = 23203;
  for (int* field : {&config.cgaClusterSize,
                     &config.minCTAs,
                     &config.maxCTAs,
                     &config.splitShare,
                     &config.trafficClass,
                     &config.collnetEnable,
                     &config.CTAPolicy,
                     &config.shrinkShare,
                     &config.nvlsCTAs,
                     &config.nChannelsPerNetPeer,
                     &config.nvlinkCentricSched,
                     &config.graphUsageMode,
                     &config.numRmaCtx,
                     &config.maxP2pPeers,
                     &config.graphStreamOrdering,
                     &config.launchOrderImplicit,
                     &config.numRmaSig,
                     &config.rmaEagerInit,
                     &config.hostCftMode,
                     &config.nvlsHostMode})
    *field = INT_MIN;
  config.blocking = blocking;
  return config;
}

ncclUniqueId make_id() {
  ncclUniqueId id{};
  EXPECT_NCCL(ncclGetUniqueId(&id));
  return id;
}

ncclResult_t settled(ncclComm_t comm) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && std::chrono::steady_clock::now() < deadline) {
    EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
    std::this_thread::yield();
  }
  return state;
}

NcclRanks::NcclRanks(int ranks, bool is_blocking) : comms_(static_cast<std::size_t>(ranks)) {
  use_host_memory();
  const ncclUniqueId id = make_id();
  ncclConfig_t config = make_config(is_blocking ? 1 : 0);
  EXPECT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_NCCL(
        ncclCommInitRankConfig(&comms_[static_cast<std::size_t>(rank)], ranks, id, rank, &config));
  EXPECT_EQ(ncclGroupEnd(), is_blocking ? ncclSuccess : ncclInProgress) << last_error();
  for (ncclComm_t comm : comms_) EXPECT_EQ(settled(comm), ncclSuccess) << last_error();
}

NcclRanks::~NcclRanks() {
  for (ncclComm_t comm : comms_) EXPECT_NCCL(ncclCommDestroy(comm));
}

ncclComm_t NcclRanks::release(int rank) {
  return std::exchange(comms_[static_cast<std::size_t>(rank)], nullptr);
}

ncclResult_t NcclRanks::together(
    const std::function<ncclResult_t(int rank, ncclComm_t comm)>& call) const {
  EXPECT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < size(); ++rank) EXPECT_NCCL(call(rank, (*this)[rank]));
  return ncclGroupEnd();
}

std::vector<ncclResult_t> NcclRanks::apart(
    const std::function<ncclResult_t(int rank, ncclComm_t comm)>& call) const {
  std::vector<ncclResult_t> results(comms_.size(), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size(); ++rank)
    threads.emplace_back(
        [&, rank] { results[static_cast<std::size_t>(rank)] = call(rank, (*this)[rank]); });
  for (std::thread& thread : threads) thread.join();
  return results;
}

long long sum(ncclComm_t comm, long long mine) {
  long long result = -1;
  const ncclResult_t code = ncclAllReduce(&mine, &result, 1, ncclInt64, ncclSum, comm, nullptr);
  return code == ncclSuccess ? result : -1;
}

}  // namespace unisono::test
