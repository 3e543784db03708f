// Ranks of several hosts with emulated GPUs, and what they call.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <set>
#include <string>

#include "support/emulated_device.h"
#include "support/forked_ranks.h"
#include "support/gpu_cluster.h"

namespace unisono::test {

class GpuHosts : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (EmulatedDevice::find() == nullptr) GTEST_SKIP() << "a forked process cannot use real GPUs";
    if (geteuid() != 0) GTEST_SKIP() << "only root can set host names apart";
  }
};

// Two hosts of one rank, or as many hosts of two as there are ranks for, each rank with a device of
// its own there. Calls between them are staged.
std::function<void(int rank, InitOptions& options)> apart(int ranks);

TestStream stream_of(const Communicator& communicator);
// Every collective with a few types and counts, in place and out of place; what went wrong.
std::string call_everything(Communicator& communicator, std::uint64_t seed);
// Every algorithm that there is; which path each plan took is said.
std::string call_every_plan(Communicator& communicator, std::uint64_t seed,
                            std::map<std::string, std::set<std::string>>& plans_by_path);
// The path of the last call, as the record says.
std::string last_path(const Communicator& communicator);

// The last rank is killed before an all-reduce of that algorithm, which takes that path, and which
// the others make: each of them names it.
void expect_survivors_name_the_killed(int ranks,
                                      const std::function<void(int, InitOptions&)>& place,
                                      const std::string& algorithm, const std::string& path);

}  // namespace unisono::test
