// Which plan calls on streams take, by the models of kernels and of copy engines.

#include <gtest/gtest.h>

#include "support/carried.h"

#include "base/settings.h"
#include "base/str.h"
#include "comm/select/selection.h"
#include "engine/gpu/copy_program.h"

namespace unisono::comm {
namespace {

constexpr int blocks_of_h200 = 132;

engine::gpu::Paths paths_of(bool has_tma) {
  return engine::gpu::PathTable::built_in().resolve(90, has_tma,
                                                    engine::gpu::Options().zero_copy_min_bytes);
}

Selection device_selection(int ranks, int thread_blocks = blocks_of_h200,
                           bool copies_by_tma = true) {
  return Selection(topo::Placement::single_node(ranks),
                   device_model({}, thread_blocks, paths_of(copies_by_tma)));
}

// By the row that serves the size, or by none.
TEST(Selection, OnADeviceAnExplanationNamesTheKernelAndTheRow) {
  Selection selection = device_selection(2);
  const auto note_of = [&](Collective collective, std::uint64_t bytes) {
    const auto explained = selection.explain(collective, bytes);
    return explained.ok() ? explained->note : explained.error().describe();
  };
  EXPECT_EQ(note_of(Collective::broadcast, 64 << 20),
            "why: built-in table, sm_90, messages of 16 MiB and more, here 64 MiB");
  const auto text = selection.explain(Collective::broadcast, 64 << 20)->text();
  EXPECT_NE(text.find("\npath: tma_bulk, 16 thread blocks, 7 slots of 4 KiB\n"), std::string::npos)
      << text;
  const auto small = selection.explain(Collective::all_reduce, 1024);
  EXPECT_EQ(small->path, "ll_all_pairs");
  EXPECT_EQ(small->thread_blocks, 1);
  EXPECT_EQ(small->slots, 2);
}

// On all ranks alike, the rows that the cost model makes included.
TEST(Selection, OnADeviceWithoutLl128TheNextPlanIsChosenAndSaysWhy) {
  const std::string why = "between rank 0 and rank 1 there is no NVLink";
  Selection with = device_selection(2);
  Selection without(topo::Placement::single_node(2),
                    device_model({}, blocks_of_h200, paths_of(true), why));
  int fallen = 0;
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast})
    for (std::uint64_t bytes = 1; bytes <= 1 << 30; bytes *= 4) {
      const auto usual = with.choose(collective, bytes, 0, {});
      const auto chosen = without.choose(collective, bytes, 0, {});
      ASSERT_TRUE(usual.ok() && chosen.ok());
      EXPECT_EQ(usual->fallback, trace::Fallback::none);
      EXPECT_NE(chosen->protocol, Protocol::ll128);
      const bool falls_back = usual->protocol == Protocol::ll128;
      fallen += falls_back;
      EXPECT_EQ(chosen->fallback, falls_back ? trace::Fallback::link : trace::Fallback::none);
      if (falls_back) {
        EXPECT_EQ(trace::name(chosen->instead_of), with.explain(collective, bytes)->path);
      } else {
        EXPECT_TRUE(chosen->is_same_plan(*usual));
      }
      const auto explained = without.explain(collective, bytes);
      ASSERT_TRUE(explained.ok());
      for (const PlanCandidate& one : explained->candidates)
        EXPECT_NE(one.protocol, Protocol::ll128);
    }
  EXPECT_GT(fallen, 5);
  EXPECT_NE(without.explain(Collective::all_reduce, 1 << 20)->note.find("no plan in LL128: " + why),
            std::string::npos);
  CallOptions forced;
  forced.protocol = Protocol::ll128;
  const auto refused = without.choose(Collective::all_reduce, 1 << 20, 0, forced);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "protocol ll128 cannot be used: " + why);
  forced.protocol = Protocol::simple;
  EXPECT_EQ(without.choose(Collective::all_reduce, 1 << 20, 0, forced)->fallback,
            trace::Fallback::none);
}

// As PyTorch makes calls, and as others do.
TEST(Selection, OnADeviceAnExplanationNamesThePathOfTheCallAsItIsMade) {
  Selection selection = device_selection(2);
  const auto path_of = [&](Collective collective, const ExplainOptions& options) {
    const auto explained = selection.explain(collective, 64 << 20, options);
    return explained.ok() ? str(explained->path, " ", explained->thread_blocks)
                          : explained.error().describe();
  };
  for (const bool in_place : {false, true}) {
    EXPECT_EQ(path_of(Collective::all_reduce, {.type = DataType::bfloat16,
                                               .in_place = in_place,
                                               .options = {.compute_overlap = true}}),
              "tma_bulk 8");
    EXPECT_EQ(path_of(Collective::all_reduce, {.in_place = in_place, .options = {.max_sms = 16}}),
              "tma_bulk 16");
  }
  EXPECT_EQ(path_of(Collective::all_reduce, {.operation = ReduceOperation::pre_multiplied_sum,
                                             .options = {.compute_overlap = true}}),
            "ll128_all_pairs 128");
  EXPECT_EQ(path_of(Collective::all_to_all, {}), "zero_copy 128");
  EXPECT_EQ(path_of(Collective::all_to_all, {.in_place = true}), "ll128_all_pairs 128");
  EXPECT_EQ(selection.explain(Collective::all_to_all, 64 << 20, {.in_place = true})->note,
            "why: in place, what arrives by zero_copy might overwrite what is not yet read");
  EXPECT_EQ(path_of(Collective::all_reduce, {.options = {.max_sms = -1}}),
            "misuse: max_sms is -1; it must be 1 or more, or 0 for the communicator's limit");
}

// A slice of a device (MIG), or an older one.
TEST(Selection, OnASmallDeviceNoPlanHasMoreThreadBlocksThanRunAtOnce) {
  for (const int thread_blocks : {8, 16, 108})
    for (Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
          Collective::all_to_all, Collective::broadcast, Collective::reduce})
      for (std::uint64_t bytes = 64; bytes <= (std::uint64_t{1} << 30); bytes *= 16) {
        Selection selection = device_selection(4, thread_blocks);
        const auto choice = selection.candidates(collective, bytes).front().choice;
        const auto request = selection.request(collective, choice, 0, false);
        const auto program = algorithm::make_program(*choice.entry, request, 0);
        ASSERT_TRUE(program.ok()) << program.error().describe();
        EXPECT_LE(program->thread_blocks.size(), static_cast<std::size_t>(thread_blocks))
            << name(collective) << " of " << bytes << " bytes";
      }
}

TEST(Selection, OnADeviceSmallCallsTakeOneHopAndLargeOnesTheWholeLink) {
  for (int ranks : {2, 4, 8}) {
    Selection selection = device_selection(ranks);
    for (Collective collective : {Collective::all_reduce, Collective::all_gather,
                                  Collective::reduce_scatter, Collective::all_to_all}) {
      SCOPED_TRACE(testing::Message() << name(collective) << ", " << ranks << " ranks");
      const auto small = selection.candidates(collective, 4096).front();
      EXPECT_EQ(small.cost.steps, 1);
      EXPECT_EQ(small.choice.protocol, Protocol::ll);
      // Straight, by a kernel of LL128's plans, or by many thread blocks of a plan's.
      const auto large = selection.candidates(collective, std::uint64_t{1} << 30).front();
      const bool is_zero_copy_size = collective == Collective::all_gather ||
                                     collective == Collective::all_to_all ||
                                     (collective == Collective::reduce_scatter && ranks == 2);
      EXPECT_EQ(large.choice.protocol, is_zero_copy_size ? Protocol::ll128 : Protocol::simple);
      EXPECT_EQ(large.choice.channels > 1, !is_zero_copy_size);
      EXPECT_LT(small.time_us, large.time_us);
    }
  }
}

// Whether its plans exchange what that algorithm's do: of few ranks, several are one.
bool does_as(const algorithm::Entry& entry, std::string_view algorithm, int ranks) {
  if (entry.name == algorithm) return true;
  const auto exchange = test::exchange_of(entry, ranks);
  const auto wanted = test::exchange_of(**algorithm::find(entry.collective, algorithm), ranks);
  return exchange && wanted && *exchange == *wanted;
}

// As measured on 4 H200: bench/results/gpu_kernel_choices.txt.
TEST(Selection, OnADeviceAReduceIsOneHopThenARingInLinesThenInTiles) {
  Selection selection = device_selection(4);
  const auto best = [&](std::uint64_t bytes) {
    const Choice choice = selection.candidates(Collective::reduce, bytes).front().choice;
    return str(choice.entry->name, " ", name(choice.protocol), " ", choice.channels);
  };
  for (const std::uint64_t bytes : {1 << 10, 64 << 10, 128 << 10})
    EXPECT_EQ(best(bytes), "knomial4 ll 1") << bytes;
  for (const std::uint64_t bytes : {256 << 10, 512 << 10})
    EXPECT_EQ(best(bytes), "knomial4 ll128 1") << bytes;
  for (const std::uint64_t bytes : {2 << 20, 4 << 20, 16 << 20, 64 << 20})
    EXPECT_EQ(best(bytes), "ring ll128 64") << bytes;
  for (const std::uint64_t bytes : {256 << 20, 1 << 30})
    EXPECT_EQ(best(bytes), "ring simple 64") << bytes;
}

// As measured on 2 H200: lines carry 16 MiB to the root in 58 us, a ring's tiles in 69; 64 MiB in
// 227 and 214. Bulk copies are faster than both.
TEST(Selection, BetweenTwoDevicesAReduceIsOneHopForLonger) {
  Selection selection = device_selection(2, blocks_of_h200, /*copies_by_tma=*/false);
  const auto best = [&](std::uint64_t bytes) {
    const Choice choice = selection.candidates(Collective::reduce, bytes).front().choice;
    return str(choice.entry->name, " ", name(choice.protocol), " ", choice.channels);
  };
  for (const std::uint64_t bytes : {1 << 20, 4 << 20, 16 << 20})
    EXPECT_EQ(best(bytes), "ring ll128 1") << bytes;  // one hop
  EXPECT_EQ(best(64 << 20), "ring simple 64");
  // Within a hundredth of the ring's time.
  for (const std::uint64_t bytes : {256 << 20, 1 << 30})
    EXPECT_EQ(best(bytes), "two_shot simple 64") << bytes;
}

TEST(Selection, WithFewMultiprocessorsCallsTakeNoMoreWhereTheyCan) {
  for (int ranks : {2, 4, 8}) {
    Selection selection = device_selection(ranks);
    for (const auto& [collective, can] : {std::pair{Collective::all_reduce, 1},
                                          {Collective::all_gather, 1},
                                          {Collective::broadcast, 1},
                                          {Collective::all_to_all, ranks - 1}})
      for (const int max_sms : {1, 2, 8, 40})
        for (const std::uint64_t bytes :
             {std::uint64_t{64}, std::uint64_t{1} << 20, (std::uint64_t{1} << 28) + 12345}) {
          SCOPED_TRACE(testing::Message() << name(collective) << ", " << ranks << " ranks, "
                                          << max_sms << " of them, " << bytes << " bytes");
          const auto choice = selection.choose(collective, bytes, 0, {.max_sms = max_sms});
          ASSERT_TRUE(choice.ok()) << choice.error().describe();
          const auto request = selection.request(collective, *choice, 0, false);
          const double block =
              collective == Collective::all_gather || collective == Collective::all_to_all
                  ? static_cast<double>(bytes) / ranks
                  : static_cast<double>(bytes);
          EXPECT_LE(device_model({}, blocks_of_h200, paths_of(true))
                        ->thread_blocks(*choice->entry, request, block),
                    std::max(max_sms, 2 * can));
        }
  }
}

TEST(Selection, OnADeviceFewThreadBlocksTakeLargeCallsByBulkCopies) {
  for (const int ranks : {2, 4, 8})
    for (const int max_sms : {4, 8, 32})
      for (const auto& [collective, algorithm] : {std::pair{Collective::all_reduce, "two_shot"},
                                                  {Collective::all_gather, "direct"},
                                                  {Collective::reduce_scatter, "direct"},
                                                  {Collective::all_to_all, "direct"},
                                                  {Collective::broadcast, "two_shot"},
                                                  {Collective::reduce, "two_shot"}}) {
        SCOPED_TRACE(testing::Message()
                     << name(collective) << ", " << ranks << " ranks, " << max_sms << " of them");
        Selection selection = device_selection(ranks);
        const auto choice =
            selection.choose(collective, std::uint64_t{1} << 28, 0, {.max_sms = max_sms});
        ASSERT_TRUE(choice.ok()) << choice.error().describe();
        EXPECT_TRUE(does_as(*choice->entry, algorithm, ranks)) << choice->entry->name;
        EXPECT_EQ(choice->protocol, Protocol::ll128);
        EXPECT_EQ(choice->channels, 1);
      }
}

TEST(Selection, OnADeviceLargeCallsThatLeaveRoomGoByBulkCopies) {
  for (const int ranks : {2, 3, 4, 8})
    for (const bool copies_by_tma : {true, false})
      for (const auto& [collective, algorithm] : {std::pair{Collective::all_reduce, "two_shot"},
                                                  {Collective::all_gather, "direct"},
                                                  {Collective::reduce_scatter, "direct"}})
        for (std::uint64_t bytes = 24; bytes <= 4096; bytes *= 4) {
          SCOPED_TRACE(testing::Message() << name(collective) << ", " << ranks << " ranks, "
                                          << bytes << " MiB, in bulk " << copies_by_tma);
          Selection selection = device_selection(ranks, blocks_of_h200, copies_by_tma);
          const auto usual = selection.choose(collective, bytes << 20, 0, {});
          const auto choice =
              selection.choose(collective, bytes << 20, 0, {.compute_overlap = true});
          ASSERT_TRUE(choice.ok()) << choice.error().describe();
          if (!copies_by_tma) {
            EXPECT_TRUE(choice->is_same_plan(*usual));
            continue;
          }
          EXPECT_TRUE(does_as(*choice->entry, algorithm, ranks)) << choice->entry->name;
          EXPECT_EQ(choice->protocol, Protocol::ll128);
          EXPECT_EQ(choice->channels, 1);
        }
}

// Where devices copy in bulk; tiles elsewhere.
TEST(Selection, OnADeviceLargeCallsFromAndToARootGoByBulkCopies) {
  for (const auto& [collective, ranks, algorithm, elsewhere] :
       {std::tuple{Collective::broadcast, 2, "two_shot", "ring"},
        {Collective::broadcast, 4, "two_shot", "ring"},
        {Collective::reduce, 2, "knomial4", "two_shot"}})
    for (const bool copies_by_tma : {true, false})
      for (const std::uint64_t bytes : {256ULL << 20, 1ULL << 30}) {
        SCOPED_TRACE(testing::Message() << name(collective) << ", " << ranks << " ranks, " << bytes
                                        << " bytes, in bulk " << copies_by_tma);
        Selection selection = device_selection(ranks, blocks_of_h200, copies_by_tma);
        const Choice choice = selection.candidates(collective, bytes).front().choice;
        EXPECT_TRUE(does_as(*choice.entry, copies_by_tma ? algorithm : elsewhere, ranks))
            << choice.entry->name;
        EXPECT_EQ(choice.protocol, copies_by_tma ? Protocol::ll128 : Protocol::simple);
      }
}

TEST(Selection, AnAlgorithmThatTakesMoreThanItMayIsRefused) {
  Selection selection = device_selection(4);
  CallOptions options{.algorithm = "two_shot", .channels = 16, .max_sms = 4};
  const auto refused = selection.choose(Collective::all_reduce, 1 << 24, 0, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("max_sms is 4"), std::string::npos)
      << refused.error().message;
}

TEST(Selection, TheCopyEnginesServeWhatCombinesNothing) {
  for (int ranks : {1, 2, 3, 8}) {
    Selection selection(topo::Placement::single_node(ranks), copy_model({}));
    for (int i = 0; i <= static_cast<int>(Collective::barrier); ++i) {
      const auto collective = static_cast<Collective>(i);
      const auto choice = selection.choose(collective, 1 << 20, 0, {});
      EXPECT_EQ(choice.ok(), !is_reduction(collective)) << name(collective) << ", " << ranks;
    }
  }
}

// Two ranks send the same bytes whatever the plan, but through slots they are copied twice.
TEST(Selection, TheCopyEnginesTakePlansThatGoStraight) {
  for (int ranks : {2, 3, 4}) {
    Selection selection(topo::Placement::single_node(ranks), copy_model({}));
    for (Collective collective : {Collective::all_gather, Collective::all_to_all,
                                  Collective::broadcast, Collective::gather, Collective::scatter}) {
      const auto choice = selection.choose(collective, 64 << 20, 0, {});
      ASSERT_TRUE(choice.ok()) << choice.error().message;
      EXPECT_GT(test::zero_copy_hops(*choice->entry, ranks), 0)
          << name(collective) << " of " << ranks << " ranks: " << choice->entry->name;
    }
  }
}

TEST(Selection, OnADeviceARankAloneIsServedToo) {
  Selection selection = device_selection(1);
  for (int i = 0; i <= static_cast<int>(Collective::barrier); ++i)
    EXPECT_TRUE(selection.choose(static_cast<Collective>(i), 8, 0, {}).ok())
        << name(static_cast<Collective>(i));
}

TEST(Selection, OnADeviceEveryCandidateFitsTheDevice) {
  Selection selection = device_selection(4);
  for (const Candidate& candidate : selection.candidates(Collective::all_reduce, 1 << 20)) {
    const auto request = selection.request(Collective::all_reduce, candidate.choice, 0, false);
    const auto program = algorithm::make_program(*candidate.choice.entry, request, 0);
    ASSERT_TRUE(program.ok()) << program.error().message;
    EXPECT_LE(program->thread_blocks.size(), 128U) << candidate.choice.entry->name;
  }
}

}  // namespace
}  // namespace unisono::comm
