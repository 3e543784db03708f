// Ranks of one process through NCCL's interface, on host memory.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

// These tests are programs for NCCL: they compile against NVIDIA's headers as well (CMake's
// UNISONO_NCCL_INCLUDE), and then only see what those declare.
#ifdef UNISONO_NCCL_HEADERS
#include <nccl.h>
#include <nccl_device/host.h>
#else
#include "nccl/abi.h"
#endif

namespace unisono::test {

// Host memory stands in for devices in this program.
void use_host_memory();

// The communicators of all ranks, made in one group by this thread and destroyed at the end.
class NcclRanks {
 public:
  explicit NcclRanks(int ranks, bool is_blocking = true);
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  int size() const { return static_cast<int>(comms_.size()); }
  ncclComm_t operator[](int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
  // Takes the handle out: it will not be destroyed here.
  ncclComm_t release(int rank);
  // One group with `call` for each rank.
  ncclResult_t together(const std::function<ncclResult_t(int rank, ncclComm_t comm)>& call) const;
  // The same from a thread for each rank; what each returned.
  std::vector<ncclResult_t> apart(
      const std::function<ncclResult_t(int rank, ncclComm_t comm)>& call) const;

 private:
  std::vector<ncclComm_t> comms_;
};

ncclConfig_t make_config(int blocking = INT_MIN);
ncclUniqueId make_id();
// Asks until it is no longer in progress.
ncclResult_t settled(ncclComm_t comm);
// For messages of failed expectations.
std::string last_error();

// Sums `mine` over all ranks of `comm`, from this thread. -1: failed.
long long sum(ncclComm_t comm, long long mine);

#define EXPECT_NCCL(expression) EXPECT_EQ(expression, ncclSuccess) << unisono::test::last_error()
#define ASSERT_NCCL(expression) ASSERT_EQ(expression, ncclSuccess) << unisono::test::last_error()

}  // namespace unisono::test
