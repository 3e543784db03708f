// The GPU engine against the plain reference: plans of every kind, in every protocol, with all
// types and operations. Skipped, and says so, where there is no GPU.
#include <gtest/gtest.h>

#include "support/carried.h"
#include "support/emulated_device.h"

#include <cmath>
#include <cstring>
#include <random>
#include <tuple>

#include "base/str.h"
#include "engine/gpu/ll128_all_pairs.h"
#include "engine/gpu/ll_all_pairs.h"
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
  std::mt19937_64 random(test_seed());
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
  std::mt19937_64 random(test_seed());
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
  std::mt19937_64 random(test_seed());
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
  std::mt19937_64 random(test_seed());
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
  std::mt19937_64 random(test_seed());
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

// On so many ranks, of one type.
class GpuSpecialisedPlans : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  void SetUp() override {
    std::string why;
    if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  }
  int ranks() const { return std::get<0>(GetParam()); }
  DataType type() const { return static_cast<DataType>(std::get<1>(GetParam())); }
  // Large calls take the host long to check.
  bool takes_large_calls() const { return std::get<1>(GetParam()) % 4 == 0; }
  std::mt19937_64 random_{test_seed()};
};
INSTANTIATE_TEST_SUITE_P(RanksAndTypes, GpuSpecialisedPlans,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Range(0, data_type_count)),
                         [](const auto& with) {
                           const auto type = static_cast<DataType>(std::get<1>(with.param));
                           return str(std::get<0>(with.param), "_", name(type));
                         });

// The kernels that are written for them, on both sides of the sizes that they serve, plans in turn.
TEST_P(GpuSpecialisedPlans, AreRightForAllOperationsAndSizes) {
  const std::pair<Collective, const char*> plans[] = {
      {Collective::all_reduce, "one_shot"},   {Collective::all_reduce, "two_shot"},
      {Collective::all_gather, "direct"},     {Collective::broadcast, "knomial4"},
      {Collective::reduce_scatter, "direct"}, {Collective::all_to_all, "direct"},
      {Collective::gather, "knomial4"},       {Collective::scatter, "knomial4"},
      {Collective::reduce, "knomial4"}};
  GpuCluster cluster(ranks(), {});
  for (const auto& [collective, name] : plans) {
    const algorithm::Entry& entry = **algorithm::find(collective, name);
    const auto kind = ll_kind(entry, ranks());
    if (!kind) continue;
    const std::size_t segments = *kind == device::LlKind::two_shot ? ranks() : 1;
    const auto most = static_cast<std::int64_t>(segments * device::ll_max_bytes(*kind, ranks()) /
                                                size_bytes(type()));
    for (std::int64_t count :
         {std::int64_t{1}, static_cast<std::int64_t>(random_() % 5000) + 2, most, most + 1}) {
      if (count >= most && !takes_large_calls()) continue;
      auto problem = problem_of(entry, ranks(), count, random_);
      problem.operation = static_cast<ReduceOperation>(random_() % reduce_operation_count);
      auto run = run_of(entry, problem, Protocol::ll, 1, random_() % 2 == 0, random_());
      run.type = type();
      run.calls = 3;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
      if (HasFailure()) return;
    }
  }
}

// Those of whole words, which serve sums of these types; of other types, and where some rank's
// buffers begin elsewhere, it is another kernel.
TEST_F(Gpu, SpecialisedPlansOfWholeWordsAreRight) {
  for (int ranks : {2, 3, 4}) {
    GpuCluster cluster(ranks, {});
    std::mt19937_64 random(test_seed());
    for (const algorithm::Entry& entry : entries_by_exchange(ranks)) {
      if (!ll_kind(entry, ranks)) continue;
      for (const DataType type :
           {DataType::float16, DataType::bfloat16, DataType::float32, DataType::int32})
        for (const bool is_aligned : {true, false}) {
          // Segments of two shots are of unequal size, and some are empty.
          const auto words = static_cast<std::int64_t>(random() % (random() % 2 == 0 ? 4 : 3000));
          const auto count = (words + 1) * 8 / static_cast<std::int64_t>(size_bytes(type));
          auto problem = problem_of(entry, ranks, count, random);
          problem.operation = ReduceOperation::sum;
          auto run = run_of(entry, problem, Protocol::ll, 1, random() % 2 == 0, random());
          run.type = type;
          run.is_aligned = is_aligned;
          run.calls = 3;
          EXPECT_EQ(cluster.run(run), "") << describe(run);
          if (HasFailure()) return;
        }
    }
  }
}

// In LL128, in so many rounds that slots are used again.
TEST_P(GpuSpecialisedPlans, InLl128AreRightForAllOperationsAndSizes) {
  const std::pair<Collective, const char*> plans[] = {
      {Collective::all_reduce, "two_shot"},   {Collective::all_gather, "direct"},
      {Collective::reduce_scatter, "direct"}, {Collective::all_to_all, "direct"},
      {Collective::broadcast, "two_shot"},    {Collective::reduce, "two_shot"},
      {Collective::gather, "knomial4"},       {Collective::scatter, "knomial4"},
      {Collective::reduce, "knomial4"}};
  GpuCluster cluster(ranks(), {});
  for (const auto& [collective, name] : plans) {
    const algorithm::Entry& entry = **algorithm::find(collective, name);
    ASSERT_GT(ll128_hops(entry, ranks()), 0);
    const auto round = static_cast<std::int64_t>(device::ll128_group_payload *
                                                 device::ll128_max_warps / size_bytes(type()));
    for (std::int64_t count :
         {std::int64_t{1}, static_cast<std::int64_t>(random_() % 5000) + 2, 3 * round + 7}) {
      if (count > round && !takes_large_calls()) continue;
      auto problem = problem_of(entry, ranks(), count, random_);
      problem.operation = static_cast<ReduceOperation>(random_() % reduce_operation_count);
      auto run = run_of(entry, problem, Protocol::ll128, 1, random_() % 2 == 0, random_());
      run.type = type();
      run.is_aligned = random_() % 2 == 0;
      run.calls = count > round ? 2 : 3;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
      if (HasFailure()) return;
    }
  }
}

// Each once through slots and once zero-copy, small enough for tools that watch every access.
class GpuSpecialisedKernels : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::string why;
    if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuSpecialisedKernels, testing::Values(2, 4),
                         testing::PrintToStringParamName());

TEST_P(GpuSpecialisedKernels, AreRightThroughSlotsAndZeroCopy) {
  const int ranks = GetParam();
  std::mt19937_64 random(test_seed());
  for (const std::uint64_t zero_copy_min_bytes :
       {engine::gpu::Options::no_zero_copy, std::uint64_t{1}}) {
    GpuCluster cluster(ranks, {.engine = {.zero_copy_min_bytes = zero_copy_min_bytes},
                               .sees = [](int, int) { return true; }});
    int runs = 0;
    for (const algorithm::Entry& entry : entries_by_exchange(ranks))
      for (const Protocol protocol : {Protocol::ll, Protocol::ll128}) {
        const bool is_specialised = protocol == Protocol::ll ? ll_kind(entry, ranks).has_value()
                                                             : ll128_hops(entry, ranks) > 0;
        if (!is_specialised) continue;
        auto run =
            run_of(entry, problem_of(entry, ranks, 3001, random), protocol, 1, false, random());
        run.calls = 3;
        EXPECT_EQ(cluster.run(run), "") << describe(run);
        run.problem.count = 3000;
        run.type = DataType::bfloat16;
        run.is_aligned = true;
        EXPECT_EQ(cluster.run(run), "") << describe(run);
        ++runs;
      }
    EXPECT_GE(runs, 16);
  }
}

// Calls of different roots and plans in turn share slots and counts of rounds.
TEST_F(Gpu, SpecialisedPlansFollowEachOther) {
  constexpr int ranks = 4;
  GpuCluster cluster(ranks, {});
  std::mt19937_64 random(test_seed());
  const std::pair<Collective, const char*> plans[] = {
      {Collective::broadcast, "two_shot"},  {Collective::gather, "knomial4"},
      {Collective::scatter, "knomial4"},    {Collective::broadcast, "knomial4"},
      {Collective::all_gather, "direct"},   {Collective::reduce, "two_shot"},
      {Collective::reduce, "knomial4"},     {Collective::reduce, "knomial4"},
      {Collective::all_reduce, "two_shot"}, {Collective::reduce_scatter, "direct"}};
  for (int i = 0; i < 200; ++i) {
    const auto& [collective, name] = plans[random() % std::size(plans)];
    const algorithm::Entry& entry = **algorithm::find(collective, name);
    const auto count = static_cast<std::int64_t>(random() % (i % 20 == 0 ? 2'000'000 : 3000)) + 1;
    const bool in_lines = std::string_view(name) == "two_shot" || random() % 2 == 0;
    auto run = run_of(entry, problem_of(entry, ranks, count, random),
                      in_lines ? Protocol::ll128 : Protocol::ll, 1, false, random());
    run.type = random() % 2 == 0 ? DataType::int32 : DataType::float32;
    run.is_aligned = random() % 2 == 0;
    run.calls = 1 + static_cast<int>(random() % 3);
    EXPECT_EQ(cluster.run(run), "") << describe(run);
    if (HasFailure()) return;
  }
}

// What every rank has for random floats, whose sums show the order in which they were added.
std::vector<std::vector<float>> sums_of(GpuCluster& cluster, const algorithm::Entry& entry,
                                        Protocol protocol, std::int64_t count, DataType type) {
  std::mt19937_64 random(7);
  const auto ranks = static_cast<std::size_t>(cluster.ranks());
  Problem problem{.collective = entry.collective, .ranks = cluster.ranks(), .root = 1};
  auto executions = cluster.make_executions(run_of(entry, problem, protocol, 1, false, 1)).value();
  const std::size_t bytes = ranks * static_cast<std::size_t>(count) * sizeof(float);
  std::vector<sys::cuda::Memory> memory;
  std::vector<engine::Arguments> arguments;
  std::vector<std::vector<float>> values(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto device = cluster.engine(static_cast<int>(r)).shared_device();
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i)
      values[r].push_back(std::ldexp(static_cast<float>(random() % 10'000) - 5000.F,
                                     static_cast<int>(random() % 20)));
    memory.push_back(sys::cuda::Memory::allocate(device, 2 * bytes).value());
    EXPECT_TRUE(device->upload(memory[r].address(), values[r].data(), bytes).ok());
    auto* data = reinterpret_cast<std::byte*>(memory[r].address());
    arguments.push_back({.input = data,
                         .output = data + bytes,
                         .count = count,
                         .type = type,
                         .options = {.timeout = std::chrono::seconds(120),
                                     .stream = cluster.stream(static_cast<int>(r)).handle()}});
  }
  EXPECT_TRUE(cluster.launch(executions, arguments, cluster.all_ranks()).ok());
  EXPECT_TRUE(cluster.synchronize().ok());
  const bool has_result_everywhere = !has_root(entry.collective);
  const std::size_t wanted = static_cast<std::size_t>(count) * size_bytes(type);
  for (std::size_t r = 0; r < ranks; ++r) {
    values[r].assign(wanted / sizeof(float), 0);
    if (!has_result_everywhere && static_cast<int>(r) != problem.root) continue;
    const auto& device = cluster.engine(static_cast<int>(r)).device();
    EXPECT_TRUE(device
                    .copy(reinterpret_cast<sys::cuda::DeviceAddress>(values[r].data()),
                          memory[r].address() + bytes, wanted)
                    .ok());
  }
  return values;
}

// Protocol Simple has no specialised kernels.
TEST_F(Gpu, SpecialisedPlansAddInThePlansOrder) {
  GpuCluster cluster(4, {});
  for (const auto& [collective, name] : {std::pair{Collective::all_reduce, "one_shot"},
                                         {Collective::all_reduce, "two_shot"},
                                         {Collective::reduce_scatter, "direct"},
                                         {Collective::reduce, "knomial4"},
                                         {Collective::reduce, "two_shot"}})
    for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float16}) {
      const algorithm::Entry& entry = **algorithm::find(collective, name);
      constexpr std::int64_t count = 6000;
      const auto interpreted = sums_of(cluster, entry, Protocol::simple, count, type);
      for (const Protocol protocol : {Protocol::ll, Protocol::ll128})
        for (std::size_t rank = 0; rank < interpreted.size(); ++rank)
          EXPECT_EQ(std::memcmp(sums_of(cluster, entry, protocol, count, type)[rank].data(),
                                interpreted[rank].data(), interpreted[rank].size() * sizeof(float)),
                    0)
              << entry.plan_name() << ", " << unisono::name(protocol) << ", rank " << rank;
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
                      .options = {.timeout = std::chrono::nanoseconds(timeout_ns),
                                  .stream = cluster_->stream(rank).handle()}};
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
  EXPECT_NE(failure.error().message.find("waited for message 3 from rank 1 (2 have arrived) on "
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
