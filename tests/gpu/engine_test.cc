// The GPU engine against the plain reference: plans of every kind, in every protocol, with all
// types and operations. Skipped, and says so, where there is no GPU.
#include <gtest/gtest.h>

#include <random>

#include "engine/gpu/direct.h"
#include "engine/gpu/lines.h"
#include "gpu/runs.h"

namespace unisono::test {
namespace {

constexpr Protocol all_protocols[] = {Protocol::simple, Protocol::ll, Protocol::ll128};

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  }
};

TEST_F(Gpu, EveryPlanGivesTheRightResultInEveryProtocol) {
  constexpr int ranks = 4;
  GpuCluster cluster(ranks, {});
  std::mt19937_64 random(std::random_device{}());
  for (const algorithm::Entry& entry : algorithm::entries())
    for (Protocol protocol : all_protocols) {
      const auto count = static_cast<std::int64_t>(1 + random() % 5000);
      const bool can_be_in_place =
          entry.collective != Collective::all_to_all_v && entry.collective != Collective::barrier;
      auto run = run_of(entry, problem_of(entry, ranks, count, random), protocol, 2,
                        can_be_in_place && random() % 2 == 0, random());
      run.calls = 3;
      if (!serves(entry, run)) run.request.in_place = false;
      if (!serves(entry, run)) continue;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
      if (HasFailure()) return;
    }
}

TEST_F(Gpu, EveryTypeAndOperationIsCombinedRight) {
  constexpr int ranks = 3;
  GpuCluster cluster(ranks, {});
  std::mt19937_64 random(std::random_device{}());
  const algorithm::Entry& entry = **algorithm::find(Collective::all_reduce, "ring");
  for (int type = 0; type < data_type_count; ++type)
    for (int operation = 0; operation < reduce_operation_count; ++operation) {
      auto problem = problem_of(entry, ranks, 777, random);
      problem.operation = static_cast<ReduceOperation>(operation);
      const Protocol protocol = all_protocols[random() % 3];
      auto run = run_of(entry, problem, protocol, 1, random() % 2 == 0, random());
      run.type = static_cast<DataType>(type);
      EXPECT_EQ(cluster.run(run), "") << describe(run);
      if (HasFailure()) return;
    }
}

TEST_F(Gpu, ManyTilesGoThroughFewSlots) {
  constexpr int ranks = 4;
  GpuCluster cluster(ranks, {.engine = {.slots = 2, .slot_bytes = 4096}});
  std::mt19937_64 random(std::random_device{}());
  for (const char* name : {"ring", "two_shot"})
    for (Protocol protocol : all_protocols) {
      const algorithm::Entry& entry = **algorithm::find(Collective::all_reduce, name);
      auto run =
          run_of(entry, problem_of(entry, ranks, 200'003, random), protocol, 2, true, random());
      run.type = DataType::float32;
      run.calls = 2;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
    }
}

TEST_F(Gpu, LargeAlignedBuffersAreRight) {
  constexpr int ranks = 4;
  GpuCluster cluster(ranks, {});
  std::mt19937_64 random(std::random_device{}());
  for (Protocol protocol : all_protocols)
    for (const char* name : {"ring", "two_shot", "tree"}) {
      const algorithm::Entry& entry = **algorithm::find(Collective::all_reduce, name);
      auto run =
          run_of(entry, problem_of(entry, ranks, 1 << 20, random), protocol, 4, false, random());
      run.type = DataType::bfloat16;
      run.is_aligned = true;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
    }
}

TEST_F(Gpu, GraphsReplayWithNewData) {
  constexpr int ranks = 4;
  GpuCluster cluster(ranks, {});
  std::mt19937_64 random(std::random_device{}());
  for (Protocol protocol : all_protocols)
    for (const char* name : {"one_shot", "two_shot"}) {
      const algorithm::Entry& entry = **algorithm::find(Collective::all_reduce, name);
      auto run =
          run_of(entry, problem_of(entry, ranks, 30'001, random), protocol, 2, false, random());
      run.calls = 6;
      run.is_graph = true;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
    }
}

// The kernels that are written for them, on both sides of the sizes that they serve, plans in turn.
TEST_F(Gpu, PlansByHandAreRightForAllTypesOperationsAndSizes) {
  const std::pair<Collective, const char*> plans[] = {
      {Collective::all_reduce, "one_shot"},   {Collective::all_reduce, "two_shot"},
      {Collective::all_gather, "direct"},     {Collective::broadcast, "knomial4"},
      {Collective::reduce_scatter, "direct"}, {Collective::all_to_all, "direct"},
      {Collective::gather, "knomial4"},       {Collective::scatter, "knomial4"}};
  for (int ranks : {2, 3, 4}) {
    GpuCluster cluster(ranks, {});
    std::mt19937_64 random(std::random_device{}());
    for (int type = 0; type < data_type_count; ++type)
      for (const auto& [collective, name] : plans) {
        const algorithm::Entry& entry = **algorithm::find(collective, name);
        const auto as = static_cast<DataType>(type);
        const auto kind = engine::gpu::direct_kind(collective, name, ranks);
        if (!kind) continue;
        const std::size_t segments = *kind == device::DirectKind::two_shot ? ranks : 1;
        const auto most = static_cast<std::int64_t>(
            segments * device::direct_max_bytes(*kind, ranks) / size_bytes(as));
        for (std::int64_t count :
             {std::int64_t{1}, static_cast<std::int64_t>(random() % 5000) + 2, most, most + 1}) {
          // Large ones take the host long to check.
          if (count >= most && type % 4 != 0) continue;
          auto problem = problem_of(entry, ranks, count, random);
          problem.operation = static_cast<ReduceOperation>(random() % reduce_operation_count);
          auto run = run_of(entry, problem, Protocol::ll, 1, random() % 2 == 0, random());
          run.type = as;
          run.calls = 3;
          EXPECT_EQ(cluster.run(run), "") << describe(run);
          if (HasFailure()) return;
        }
      }
  }
}

// In LL128, in so many rounds that slots are used again.
TEST_F(Gpu, PlansByHandInLinesAreRightForAllTypesOperationsAndSizes) {
  const std::pair<Collective, const char*> plans[] = {
      {Collective::all_reduce, "two_shot"},   {Collective::all_gather, "direct"},
      {Collective::reduce_scatter, "direct"}, {Collective::all_to_all, "direct"},
      {Collective::broadcast, "two_shot"},    {Collective::reduce, "two_shot"},
      {Collective::gather, "knomial4"},       {Collective::scatter, "knomial4"}};
  for (int ranks : {2, 3, 4}) {
    GpuCluster cluster(ranks, {});
    std::mt19937_64 random(std::random_device{}());
    for (int type = 0; type < data_type_count; ++type)
      for (const auto& [collective, name] : plans) {
        ASSERT_GT(engine::gpu::lines_hops(collective, name, ranks), 0);
        const algorithm::Entry& entry = **algorithm::find(collective, name);
        const auto as = static_cast<DataType>(type);
        const auto round = static_cast<std::int64_t>(device::lines_group_payload *
                                                     device::lines_max_warps / size_bytes(as));
        for (std::int64_t count :
             {std::int64_t{1}, static_cast<std::int64_t>(random() % 5000) + 2, 3 * round + 7}) {
          if (count > round && type % 4 != 0) continue;
          auto problem = problem_of(entry, ranks, count, random);
          problem.operation = static_cast<ReduceOperation>(random() % reduce_operation_count);
          auto run = run_of(entry, problem, Protocol::ll128, 1, random() % 2 == 0, random());
          run.type = as;
          run.is_aligned = random() % 2 == 0;
          run.calls = 3;
          EXPECT_EQ(cluster.run(run), "") << describe(run);
          if (HasFailure()) return;
        }
      }
  }
}

// Calls of different roots and plans in turn share slots and counts of rounds.
TEST_F(Gpu, PlansByHandFollowEachOther) {
  constexpr int ranks = 4;
  GpuCluster cluster(ranks, {});
  std::mt19937_64 random(std::random_device{}());
  const std::pair<Collective, const char*> plans[] = {
      {Collective::broadcast, "two_shot"},  {Collective::gather, "knomial4"},
      {Collective::scatter, "knomial4"},    {Collective::broadcast, "knomial4"},
      {Collective::all_gather, "direct"},   {Collective::reduce, "two_shot"},
      {Collective::all_reduce, "two_shot"}, {Collective::reduce_scatter, "direct"}};
  for (int i = 0; i < 200; ++i) {
    const auto& [collective, name] = plans[random() % std::size(plans)];
    const algorithm::Entry& entry = **algorithm::find(collective, name);
    const auto count = static_cast<std::int64_t>(random() % (i % 20 == 0 ? 2'000'000 : 3000)) + 1;
    const bool in_lines = std::string_view(name) == "two_shot" || random() % 2 == 0;
    auto run = run_of(entry, problem_of(entry, ranks, count, random),
                      in_lines ? Protocol::ll128 : Protocol::ll, 1, false, random());
    run.type = DataType::int32;
    run.calls = 1 + static_cast<int>(random() % 3);
    EXPECT_EQ(cluster.run(run), "") << describe(run);
    if (HasFailure()) return;
  }
}

// One rank calls, its peers do not.
class GpuAlone : public Gpu {
 protected:
  void launch_alone(std::int64_t timeout_ns) {
    cluster_ = std::make_unique<GpuCluster>(2, GpuCluster::Options{.timeout_ns = timeout_ns});
    std::mt19937_64 random(1);
    const algorithm::Entry& entry = **algorithm::find(Collective::all_reduce, "ring");
    const auto run = run_of(entry, problem_of(entry, 2, 64, random), Protocol::simple, 1, true, 1);
    executions_ = std::move(cluster_->make_executions(run)).value();
    std::vector<engine::Arguments> arguments(2);
    for (int rank = 0; rank < 2; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      memory_.push_back(
          std::move(sys::cuda::Memory::allocate(cluster_->engine(rank).shared_device(), 4096))
              .value());
      arguments[r] = {.input = reinterpret_cast<void*>(memory_[r].address()),
                      .output = reinterpret_cast<void*>(memory_[r].address()),
                      .count = 64,
                      .type = DataType::float32,
                      .stream = cluster_->stream(rank).handle(),
                      .timeout_ns = timeout_ns};
    }
    // Both once, so that the connection is there.
    ASSERT_TRUE(cluster_->launch(executions_, arguments, {0, 1}).ok());
    ASSERT_TRUE(cluster_->synchronize().ok());
    ASSERT_TRUE(cluster_->launch(executions_, arguments, {0}).ok());
  }
  std::vector<sys::cuda::Memory> memory_;
  std::unique_ptr<GpuCluster> cluster_;
  GpuCluster::Executions executions_;
};

TEST_F(GpuAlone, AWaitEndsAtItsDeadlineAndSaysForWhatItWaited) {
  launch_alone(50'000'000);
  ASSERT_TRUE(cluster_->stream(0).synchronize().ok());
  const Status failure = cluster_->engine(0).failure();
  ASSERT_FALSE(failure.ok());
  EXPECT_TRUE(failure.error().timed_out);
  EXPECT_EQ(failure.error().peer, 1);
  EXPECT_NE(failure.error().message.find("waits for message 3 of rank 1 (2 have arrived) on "
                                         "channel 0"),
            std::string::npos)
      << failure.error().message;
}

TEST_F(GpuAlone, AKernelThatWaitsStopsWhenTold) {
  launch_alone(60'000'000'000);
  cluster_->engine(0).stop();
  ASSERT_TRUE(cluster_->stream(0).synchronize().ok());
  EXPECT_TRUE(cluster_->engine(0).failure().ok());
}

}  // namespace
}  // namespace unisono::test
