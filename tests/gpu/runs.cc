#include "gpu/runs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/str.h"
#include "engine/gpu/copy_program.h"
#include "support/eventually.h"
#include "topo/placement.h"

namespace unisono::test {

unsigned fewer(unsigned count) {
  static const bool is_emulated = [] {
    const auto devices = usable_devices();
    return !devices.empty() && devices.front()->name() == "emulated";
  }();
  return is_emulated ? count / 20 : count;
}

Problem problem_of(const algorithm::Entry& entry, int ranks, std::int64_t count,
                   std::mt19937_64& random) {
  Problem problem;
  problem.collective = entry.collective;
  problem.ranks = ranks;
  problem.count = count;
  if (has_root(entry.collective))
    problem.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  if (entry.collective == Collective::all_to_all_v) {
    problem.counts.resize(static_cast<std::size_t>(ranks));
    for (auto& row : problem.counts)
      for (int i = 0; i < ranks; ++i)
        row.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(count + 1)));
    problem.count = 0;
  }
  if (entry.collective == Collective::barrier) problem.count = 1;
  return problem;
}

GpuCluster::Run run_of(const algorithm::Entry& entry, const Problem& problem, Protocol protocol,
                       int channels, bool in_place, std::uint64_t seed) {
  GpuCluster::Run run;
  run.entry = &entry;
  run.request = {.collective = entry.collective,
                 .placement = topo::Placement::single_node(problem.ranks),
                 .root = problem.root,
                 .in_place = in_place,
                 .protocol = protocol,
                 .channels = channels};
  run.problem = problem;
  run.seed = seed;
  return run;
}

GpuCluster::Run copies_of(const algorithm::Entry& entry, int ranks, std::int64_t count,
                          std::mt19937_64& random) {
  const bool in_place = entry.collective != Collective::all_to_all_v &&
                        entry.collective != Collective::barrier && random() % 2 == 0;
  auto run = run_of(entry, problem_of(entry, ranks, count, random), Protocol::simple, 1, in_place,
                    random());
  run.is_by_copies = true;
  if (!entry.supports(run.request).ok()) run.request.in_place = false;
  return run;
}

bool copies_have_order(const GpuCluster::Run& run, int slots) {
  if (!run.entry->supports(run.request).ok()) return false;
  const plan::Header header = algorithm::make_header(*run.entry, run.request).value();
  std::vector<engine::gpu::CopyProgram> programs;
  for (int rank = 0; rank < header.ranks; ++rank) {
    auto lowered = engine::gpu::lower_to_copies(
        header, algorithm::make_program(*run.entry, run.request, rank).value());
    if (!lowered.ok()) return false;
    programs.push_back(std::move(*lowered));
  }
  return engine::gpu::check_order(header, programs, slots).ok();
}

std::string describe(const GpuCluster::Run& run) {
  return str(run.entry->plan_name(), ", ", name(run.request.protocol), ", ", run.problem.ranks,
             " ranks, count ", run.problem.count, ", ", name(run.type), " ",
             name(run.problem.operation), run.request.in_place ? ", in place" : "", ", seed ",
             run.seed);
}

bool serves(const algorithm::Entry& entry, const GpuCluster::Run& run) {
  return entry.name.find("hierarchical") == std::string_view::npos &&
         entry.supports(run.request).ok();
}

void expect_abort_is_told(Communicator& communicator, const TestStream& stream,
                          const std::function<Status()>& call) {
  if (communicator.rank() == 0) {
    ASSERT_TRUE(call().ok());
    // Until it waits, on the device too.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    communicator.abort();
    ASSERT_TRUE(stream.synchronize().ok());
    EXPECT_TRUE(communicator.failure().error().aborted);
    return;
  }
  ASSERT_TRUE(eventually([&] {
    static_cast<void>(communicator.barrier());
    return !communicator.failure().ok();
  }));
  EXPECT_EQ(communicator.failure().error().peer, 0);
}

}  // namespace unisono::test
