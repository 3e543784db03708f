// Runs of built-in plans on a GpuCluster.
#pragma once

#include <unisono/communicator.h>

#include <functional>
#include <random>
#include <string>

#include "support/gpu_cluster.h"

namespace unisono::test {

// A problem of the entry's collective; of all_to_all_v with up to `count` elements a pair.
Problem problem_of(const algorithm::Entry& entry, int ranks, std::int64_t count,
                   std::mt19937_64& random);
GpuCluster::Run run_of(const algorithm::Entry& entry, const Problem& problem, Protocol protocol,
                       int channels, bool in_place, std::uint64_t seed);
// By the copy engines, at random in place where that can be.
GpuCluster::Run copies_of(const algorithm::Entry& entry, int ranks, std::int64_t count,
                          std::mt19937_64& random);
// Whether the copy engines can run its plan at all.
bool copies_have_order(const GpuCluster::Run& run, int slots);

// Of a number of elements or the like: a twentieth on an emulated device (tests/emulated_gpu),
// where all takes a thousand times as long.
unsigned fewer(unsigned count);

std::string describe(const GpuCluster::Run& run);
// Plans whose ranks are all on one node: the others are for several.
bool serves(const algorithm::Entry& entry, const GpuCluster::Run& run);

// In every rank: rank 0 makes a call that waits for the others, and aborts; they are told by whom.
void expect_abort_is_told(Communicator& communicator, const TestStream& stream,
                          const std::function<Status()>& call);

}  // namespace unisono::test
