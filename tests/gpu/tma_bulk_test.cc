// Large calls in bulk copies, by few thread blocks.
#include <gtest/gtest.h>

#include "support/carried.h"
#include "support/emulated_device.h"

#include <array>
#include <random>
#include <set>
#include <utility>

#include "base/str.h"
#include "engine/gpu/ll128_all_pairs.h"
#include "gpu/runs.h"

namespace unisono::test {
namespace {

constexpr std::array others{ReduceOperation::max, ReduceOperation::pre_multiplied_sum};

class GpuBulk : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    const auto devices = usable_devices(&why);
    devices_ = static_cast<int>(devices.size());
    if (devices_ == 0) GTEST_SKIP() << why;
    sms_ = devices.front()->sms();
  }
  // Every call may go in bulk, so that few bytes show all.
  static GpuCluster::Options options(std::function<bool(int, int)> sees) {
    return {.engine = {.zero_copy_min_bytes = 1}, .sees = std::move(sees)};
  }
  GpuCluster::Run run_tma_bulk(const algorithm::Entry& entry, int ranks, std::int64_t count) {
    auto run = run_of(entry, problem_of(entry, ranks, count, random_), Protocol::ll128, 1,
                      random_() % 2 == 0, random_());
    run.options.max_sms = static_cast<int>(1 + random_() % 9);
    run.is_aligned = true;
    if (!entry.supports(run.request).ok()) run.request.in_place = false;
    return run;
  }
  // As many thread blocks as it likes; `max_sms` 0.
  GpuCluster::Run run_by_default(const algorithm::Entry& entry, int ranks, std::int64_t count) {
    auto run = run_tma_bulk(entry, ranks, count);
    run.options.max_sms = 0;
    run.type = random_() % 2 == 0 ? DataType::uint8 : DataType::bfloat16;
    return run;
  }
  static bool is_tma_bulk(const algorithm::Entry& entry, int ranks, int max_sms = 1,
                          bool compute_overlap = false) {
    const int hops = ll128_hops(entry, ranks);
    static const engine::gpu::Paths paths = engine::gpu::PathTable::built_in().resolve(90, true, 1);
    const auto chosen = paths.find({entry.collective,
                                    ranks,
                                    hops,
                                    1 << 10,
                                    {.max_sms = max_sms, .compute_overlap = compute_overlap}});
    return hops > 0 && chosen.path == engine::gpu::Path::tma_bulk;
  }
  // Likewise, whoever reaches whom and whatever is aligned from call to call.
  void expect_right_by_default(GpuCluster& cluster, const algorithm::Entry& entry,
                               bool compute_overlap) {
    for (int round = 0; round < 8; ++round) {
      const unsigned most = fewer(round == 0 ? 9'000'000 : 200'000);
      auto run =
          run_by_default(entry, cluster.ranks(), static_cast<std::int64_t>(64 + random_() % most));
      if (round % 2 == 0) run.problem.count = (run.problem.count + 63) / 64 * 64;
      run.calls = 6;
      run.is_graph = round == 1;
      if (is_reduction(entry.collective) && round == 3)
        run.problem.operation = others[random_() % others.size()];
      if (is_reduction(entry.collective) && round == 2)
        run.problem.operation = ReduceOperation::average;
      run.is_aligned = random_() % 4 != 0;
      run.options.compute_overlap = compute_overlap;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
      expect_told_by_all(cluster, run);
      if (HasFailure()) return;
    }
  }
  // One rank cannot take the path: then none does, and all say so.
  static void expect_told_by_all(GpuCluster& cluster, const GpuCluster::Run& run) {
    for (int rank = 1; rank < cluster.ranks(); ++rank)
      EXPECT_EQ(cluster.fallback(rank) == trace::Fallback::none,
                cluster.fallback(0) == trace::Fallback::none)
          << describe(run) << ", rank " << rank;
  }
  // Ranks that share a device never have as many as they like.
  bool has_device_for_each(int ranks) const { return ranks >= 2 && ranks <= devices_; }
  int devices_ = 0;
  int sms_ = 0;
  std::mt19937_64 random_{test_seed()};
};

// Blocks of whole units and others, which end within one.
TEST_F(GpuBulk, EveryPlanIsRight) {
  for (const int ranks : {2, 4, 5}) {
    GpuCluster cluster(ranks, options([](int, int) { return true; }));
    for (const algorithm::Entry& entry : entries_by_exchange(ranks))
      for (int round = 0; round < 4 && is_tma_bulk(entry, ranks); ++round) {
        auto count = static_cast<std::int64_t>(1 + random_() % (round == 0 ? 400'000 : 40'000));
        if (round % 2 == 0) count = (count + 63) / 64 * 64;
        auto run = run_tma_bulk(entry, ranks, count);
        run.calls = 3;
        run.type = random_() % 2 == 0 ? DataType::float32 : DataType::bfloat16;
        if (round == 3) run.type = DataType::uint8;
        if (is_reduction(entry.collective) && round == 1)
          run.problem.operation = others[random_() % others.size()];
        if (is_reduction(entry.collective) && round == 2)
          run.problem.operation = ReduceOperation::average;
        EXPECT_EQ(cluster.run(run), "") << describe(run) << ", max_sms " << run.options.max_sms;
        if (HasFailure()) return;
      }
  }
}

// A warp has as much under way as a row of a file says, and gives the same results.
TEST_F(GpuBulk, SlotsAndChunksAreThoseOfTheRow) {
  constexpr int ranks = 4;
  for (const std::int32_t chunk_bytes : {512, 1536}) {
    engine::gpu::PathTable table;
    const Status read = table.read(
        str(R"({"paths": [{"architecture": "sm_90", "variant": "tma_bulk", "ranks": 4, "slots": 4,
                 "collectives": ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"],
                 "thread_blocks": 3, "chunk_bytes": )",
            chunk_bytes, "}]}"),
        "file");
    ASSERT_TRUE(read.ok()) << read.error().describe();
    GpuCluster cluster(ranks, options([](int, int) { return true; }));
    for (int rank = 0; rank < ranks; ++rank) cluster.engine(rank).use(table.resolve(90, true, 1));
    int chosen = 0;
    for (const algorithm::Entry& entry : entries_by_exchange(ranks)) {
      if (ll128_hops(entry, ranks) == 0) continue;
      auto run = run_tma_bulk(entry, ranks, 64 * 300);
      run.options.max_sms = 8;
      run.calls = 2;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
      const auto executions = cluster.make_executions(run);
      ASSERT_TRUE(executions.ok());
      const trace::ChosenPath path = executions->front()->path(
          {.count = run.problem.count, .type = run.type, .options = run.options});
      if (path.variant != engine::gpu::Path::tma_bulk) continue;
      EXPECT_EQ(path,
                (trace::ChosenPath{path.variant, 3, 4, static_cast<std::uint32_t>(chunk_bytes)}));
      ++chosen;
    }
    EXPECT_GE(chosen, 4);
  }
}

// Who reaches whom, and whether anything is aligned, changes from call to call.
TEST_F(GpuBulk, EveryPlanIsRightWhoeverReachesWhom) {
  constexpr int ranks = 4;
  GpuCluster cluster(ranks, options([&](int, int) { return random_() % 16 != 0; }));
  for (const algorithm::Entry& entry : entries_by_exchange(ranks))
    for (int round = 0; round < 4 && is_tma_bulk(entry, ranks); ++round) {
      auto run = run_tma_bulk(entry, ranks, static_cast<std::int64_t>(1 + random_() % 10'000) * 16);
      run.calls = 6;
      run.is_aligned = random_() % 3 != 0;
      EXPECT_EQ(cluster.run(run), "") << describe(run) << ", max_sms " << run.options.max_sms;
      expect_told_by_all(cluster, run);
      if (HasFailure()) return;
    }
}

// What a rank's execution says of the run's path, where it is limited to so many SMs.
trace::ChosenPath path_of(const engine::Execution& execution, const GpuCluster::Run& run, int sms) {
  return execution.path(
      {.count = run.problem.count,
       .type = run.type,
       .operation = run.problem.operation,
       .options = {.max_sms = sms, .compute_overlap = run.options.compute_overlap}});
}

// Right in poisoned memory, by as many thread blocks as the path says, and without a line.
void expect_path(GpuCluster& cluster, GpuCluster::Run run, int sms) {
  run.calls = 2;
  EXPECT_EQ(cluster.run(run), "") << describe(run);
  const auto executions = cluster.make_executions(run);
  ASSERT_TRUE(executions.ok());
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    const auto path = path_of(*(*executions)[static_cast<std::size_t>(rank)], run, sms);
    EXPECT_EQ(cluster.thread_blocks(rank), path.thread_blocks)
        << describe(run) << ", rank " << rank;
    EXPECT_EQ(cluster.fallback(rank), trace::Fallback::none) << describe(run) << ", rank " << rank;
    EXPECT_FALSE(cluster.has_used_slots(rank)) << describe(run) << ", rank " << rank;
  }
}

// Each rank tells why it does not take the chosen path, or that another rank cannot; and slots are
// used where it is told alone.
TEST_F(GpuBulk, NoFallbackIsSilent) {
  using enum trace::Fallback;
  struct Case {
    Collective collective;
    const char* algorithm;
    bool in_place;
    int odd_bytes;   // beyond whole units
    bool is_mapped;  // rank 0's memory, by rank 1
    std::array<trace::Fallback, 2> told;
  };
  constexpr int ranks = 2;
  if (sms_ / ((ranks + devices_ - 1) / devices_) <= device::bulk_max_blocks)
    GTEST_SKIP() << "the device has too few SMs";
  for (const Case& one : {Case{Collective::all_reduce, "two_shot", true, 0, true, {none, none}},
                          {Collective::all_reduce, "two_shot", true, 0, false, {not_mapped, peer}},
                          {Collective::all_gather, "direct", false, 0, true, {none, none}},
                          {Collective::all_gather, "direct", false, 0, false, {not_mapped, peer}},
                          {Collective::all_gather, "direct", false, 1, true, {peer, not_aligned}},
                          {Collective::all_to_all, "direct", false, 0, true, {none, none}},
                          {Collective::all_to_all, "direct", false, 0, false, {not_mapped, peer}},
                          {Collective::all_to_all, "direct", true, 0, true, {overlap, overlap}}}) {
    GpuCluster cluster(ranks, options([&](int rank, int) { return one.is_mapped || rank == 1; }));
    if (!cluster.engine(0).copies_by_tma()) GTEST_SKIP() << "the device does not copy in bulk";
    auto run = run_by_default(**algorithm::find(one.collective, one.algorithm), ranks,
                              64 * 300 + one.odd_bytes);
    run.type = DataType::uint8;
    run.options.compute_overlap = true;
    run.request.in_place = one.in_place;
    EXPECT_EQ(cluster.run(run), "") << describe(run);
    for (int rank = 0; rank < ranks; ++rank) {
      const trace::Fallback told = one.told[static_cast<std::size_t>(rank)];
      EXPECT_EQ(cluster.fallback(rank), told)
          << name(cluster.fallback(rank)) << ", " << describe(run) << ", rank " << rank;
      if (told == none || told == peer) continue;
      EXPECT_EQ(cluster.instead(rank), engine::gpu::ll128_fallback(cluster.thread_blocks(rank)));
    }
    EXPECT_EQ(cluster.has_used_slots(0) || cluster.has_used_slots(1), one.told[0] != none)
        << describe(run);
  }
}

// An all-to-all alone overwrites what is not yet read: it takes LL128, and says so.
TEST_F(GpuBulk, InPlaceEveryPlanTakesThePathOutOfPlace) {
  std::set<std::pair<Collective, trace::Path>> known;
  for (const int ranks : {2, 3, 4})
    for (const bool in_place : {false, true})
      for (const algorithm::Entry& entry : entries_by_exchange(ranks)) {
        const int sharing = (ranks + devices_ - 1) / devices_;
        const int sms = sharing > 1 ? sms_ / sharing : 0;
        if (ll128_hops(entry, ranks) == 0) continue;
        GpuCluster cluster(ranks, options([](int, int) { return true; }));
        if (!cluster.engine(0).copies_by_tma()) GTEST_SKIP() << "the device does not copy in bulk";
        auto run = run_by_default(entry, ranks, 64 * 300);
        run.options.compute_overlap = entry.collective != Collective::all_gather || ranks != 3;
        run.request.in_place = in_place;
        if (!entry.supports(run.request).ok()) continue;
        const auto executions = cluster.make_executions(run);
        ASSERT_TRUE(executions.ok()) << executions.error().describe();
        const trace::ChosenPath path = path_of(*executions->front(), run, sms);
        if (path.variant == engine::gpu::Path::ll128_all_pairs) continue;
        if (in_place && entry.collective == Collective::all_to_all) {
          EXPECT_EQ(cluster.run(run), "") << describe(run);
          EXPECT_EQ(cluster.fallback(0), trace::Fallback::overlap) << describe(run);
          continue;
        }
        expect_path(cluster, run, sms);
        if (HasFailure()) return;
        known.emplace(entry.collective, path.variant);
      }
  EXPECT_GE(known.size(), 7U);
}

TEST_F(GpuBulk, NoLineIsStoredWhereAllReachAll) {
  constexpr int ranks = 3;
  for (const bool reaches : {true, false}) {
    GpuCluster cluster(ranks, options([&](int, int) { return reaches; }));
    for (const algorithm::Entry& entry : entries_by_exchange(ranks)) {
      if (!is_tma_bulk(entry, ranks)) continue;
      auto run = run_tma_bulk(entry, ranks, 64 * 3000);
      // In place an all-to-all never goes so.
      if (entry.collective == Collective::all_to_all) run.request.in_place = false;
      run.calls = 2;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
    }
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(cluster.has_used_slots(rank), !reaches || !cluster.engine(0).copies_by_tma())
          << rank;
  }
}

TEST_F(GpuBulk, GraphsReplayOnNewData) {
  constexpr int ranks = 4;
  GpuCluster cluster(ranks, options([](int, int) { return true; }));
  for (const algorithm::Entry& entry : entries_by_exchange(ranks)) {
    if (!is_tma_bulk(entry, ranks)) continue;
    auto run = run_tma_bulk(entry, ranks, 64 * 2000);
    run.calls = 6;
    run.is_graph = true;
    EXPECT_EQ(cluster.run(run), "") << describe(run);
  }
}

// Also where the rest goes by lines, and in graphs.
TEST_F(GpuBulk, CopyEnginesKeepLargeBlocks) {
  constexpr int ranks = 2;
  constexpr std::int64_t large = 4 << 20;
  for (const bool reaches : {true, false}) {
    GpuCluster cluster(ranks, options([&](int, int) { return reaches; }));
    for (const algorithm::Entry& entry : entries_by_exchange(ranks)) {
      if (!is_tma_bulk(entry, ranks) || is_reduction(entry.collective)) continue;
      auto run = run_tma_bulk(entry, ranks, large + static_cast<std::int64_t>(random_() % 100));
      run.type = DataType::uint8;
      run.calls = 3;
      run.is_graph = random_() % 2 == 0;
      run.request.in_place = false;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
    }
  }
}

// Ranks that all others reach come with few thread blocks, the others with all, for lines.
TEST_F(GpuBulk, ByDefaultEveryPlanIsRightWhoeverReachesWhom) {
  for (const int ranks : {2, 3, 4}) {
    if (!has_device_for_each(ranks)) continue;
    GpuCluster cluster(ranks, options([&](int, int) { return random_() % 8 != 0; }));
    for (const algorithm::Entry& entry : entries_by_exchange(ranks))
      if (is_tma_bulk(entry, ranks, 0) && !HasFailure())
        expect_right_by_default(cluster, entry, false);
  }
}

// Also on devices that ranks share, where each has more thread blocks than may copy in bulk.
TEST_F(GpuBulk, LeavingRoomEveryPlanIsRightWhoeverReachesWhom) {
  for (const int ranks : {2, 3, 4}) {
    const int sharing = (ranks + devices_ - 1) / devices_;
    if (sms_ / sharing <= device::bulk_max_blocks) continue;
    GpuCluster cluster(ranks, options([&](int, int) { return random_() % 8 != 0; }));
    for (const algorithm::Entry& entry : entries_by_exchange(ranks))
      if (is_tma_bulk(entry, ranks, 0, true) && !HasFailure())
        expect_right_by_default(cluster, entry, true);
  }
}

// Also when it is captured, where a rank's number of thread blocks holds in all replays.
TEST_F(GpuBulk, ARankHasFewThreadBlocksWhereItIsReached) {
  constexpr int ranks = 2;
  const algorithm::Entry& entry = **algorithm::find(Collective::all_gather, "direct");
  for (const bool reaches : {true, false}) {
    GpuCluster cluster(ranks, options([&](int rank, int) { return reaches || rank == 0; }));
    auto run = run_by_default(entry, ranks, 64 * 3000);
    run.options.compute_overlap = true;
    run.request.in_place = false;
    run.is_graph = random_() % 2 == 0;
    run.calls = 5;
    EXPECT_EQ(cluster.run(run), "") << describe(run);
    if (!cluster.engine(0).copies_by_tma()) GTEST_SKIP() << "the device does not copy in bulk";
    EXPECT_EQ(cluster.thread_blocks(0), 8);
    if (reaches)
      EXPECT_EQ(cluster.thread_blocks(1), 8);
    else
      EXPECT_GT(cluster.thread_blocks(1), 8);
  }
}

TEST_F(GpuBulk, ByDefaultNoLineIsStoredWhereAllReachAll) {
  constexpr int ranks = 2;
  if (!has_device_for_each(ranks)) GTEST_SKIP() << "two devices are needed";
  for (const bool reaches : {true, false}) {
    GpuCluster cluster(ranks, options([&](int, int) { return reaches; }));
    for (const algorithm::Entry& entry : entries_by_exchange(ranks)) {
      if (!is_tma_bulk(entry, ranks, 0)) continue;
      auto run = run_by_default(entry, ranks, 64 * 3000);
      run.calls = 2;
      EXPECT_EQ(cluster.run(run), "") << describe(run);
    }
    // A root's are not.
    EXPECT_EQ(cluster.has_used_slots(0) || cluster.has_used_slots(1),
              !reaches || !cluster.engine(0).copies_by_tma());
  }
}

// A peer never comes: the others say what they wait for.
TEST_F(GpuBulk, ARankSaysThatItWaitsForTheOthersBuffers) {
  GpuCluster cluster(2, options([](int, int) { return true; }));
  const algorithm::Entry& entry = **algorithm::find(Collective::all_reduce, "two_shot");
  auto run = run_tma_bulk(entry, 2, 64 * 1000);
  run.options.max_sms = 2;
  ASSERT_EQ(cluster.run(run), "");
  auto executions = cluster.make_executions(run);
  ASSERT_TRUE(executions.ok()) << executions.error().describe();
  auto memory = sys::cuda::Memory::allocate(cluster.engine(0).shared_device(), 64 * 1000 * 4);
  ASSERT_TRUE(memory.ok());
  auto* data = reinterpret_cast<void*>(memory->address());
  std::vector<engine::Arguments> arguments(2);
  for (int rank = 0; rank < 2; ++rank)
    arguments[static_cast<std::size_t>(rank)] = {
        .input = data,
        .output = data,
        .count = 64 * 1000,
        .type = DataType::int32,
        .options = {.timeout = std::chrono::seconds(120),
                    .stream = cluster.stream(rank).handle(),
                    .max_sms = 2}};
  // Connections are made by both.
  ASSERT_TRUE(cluster.launch(*executions, arguments, {0, 1}).ok());
  ASSERT_TRUE(cluster.synchronize().ok());
  arguments[0].options.timeout = std::chrono::milliseconds(100);
  ASSERT_TRUE(cluster.launch(*executions, arguments, {0}).ok());
  ASSERT_TRUE(cluster.stream(0).synchronize().ok());
  const Status failure = cluster.engine(0).failure();
  ASSERT_FALSE(failure.ok());
  EXPECT_NE(failure.error().message.find("destination address 3 from rank 1"), std::string::npos)
      << failure.error().message;
}

}  // namespace
}  // namespace unisono::test
