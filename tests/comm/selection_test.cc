#include "comm/selection.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/settings.h"
#include "base/str.h"
#include "engine/gpu/copy_program.h"

namespace unisono::comm {
namespace {

Selection selection_of(int nodes, int ranks_per_node) {
  return Selection(topo::Placement::uniform(nodes, ranks_per_node),
                   host_model(transport::FifoOptions{}));
}

class WithSetting {
 public:
  WithSetting(Setting setting, const std::string& value)
      : setting_(setting), before_(settings().text(setting)) {
    EXPECT_TRUE(settings().set(setting, value).ok());
  }
  ~WithSetting() { EXPECT_TRUE(settings().set(setting_, before_).ok()); }

 private:
  Setting setting_;
  std::string before_;
};

TEST(Selection, RowsCoverEverySizeOfEveryCollective) {
  for (int nodes : {1, 2, 5})
    for (int per_node : {1, 3, 4}) {
      Selection selection = selection_of(nodes, per_node);
      for (int i = 0; i <= static_cast<int>(Collective::barrier); ++i) {
        const auto& rows = selection.rows(static_cast<Collective>(i));
        ASSERT_FALSE(rows.empty()) << name(static_cast<Collective>(i));
        EXPECT_EQ(rows.front().min_bytes, 0U);
        EXPECT_EQ(rows.back().max_bytes, UINT64_MAX);
        for (std::size_t row = 1; row < rows.size(); ++row)
          EXPECT_EQ(rows[row].min_bytes, rows[row - 1].max_bytes + 1);
      }
    }
}

TEST(Selection, SmallCallsTakeFewStepsAndLargeOnesFewBytes) {
  Selection selection = selection_of(1, 8);
  const auto costs_of = [&](std::uint64_t bytes) {
    std::vector<algorithm::Cost> costs;
    for (const Candidate& candidate : selection.candidates(Collective::all_reduce, bytes))
      costs.push_back(candidate.cost);
    return costs;  // the first is that of the choice
  };
  // Recursive doubling: neither 14 steps of a ring nor 7 messages to all others.
  const algorithm::Cost small = costs_of(8).front();
  EXPECT_LE(std::max(small.steps, small.messages), 3);
  const auto large = costs_of(std::uint64_t{1} << 28);
  for (const algorithm::Cost& other : large) EXPECT_LE(large.front().bytes_sent, other.bytes_sent);
}

// Where ranks share cores, a step waits for the other ranks' turns.
TEST(Selection, CrowdedRanksTakeFewerSteps) {
  const auto steps_of = [](Collective collective, double crowding) {
    const Selection selection(topo::Placement::single_node(4),
                              host_model(transport::FifoOptions{}, crowding));
    return selection.candidates(collective, 16).front().cost.steps;
  };
  for (Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::broadcast}) {
    EXPECT_EQ(steps_of(collective, 2), 1) << name(collective);
    EXPECT_EQ(steps_of(collective, 1), 2) << name(collective);
  }
}

// What the ranks of a node send to others goes one after another. In a double tree one rank of a
// node exchanges with the other node, where all do by recursive doubling or in a hierarchy.
TEST(Selection, MessagesBetweenNodesCountForAllRanksOfTheirNode) {
  const algorithm::Cost tree{.steps = 4, .steps_inter_node = 2, .messages_of_all_inter_node = 4};
  algorithm::Cost all = tree;
  all.messages_of_all_inter_node = 24;
  const CostModel& model = host_cost_model();
  EXPECT_DOUBLE_EQ(model.time_us(all, Protocol::simple, 2, false, 1) -
                       model.time_us(tree, Protocol::simple, 2, false, 1),
                   10 * model.shared_us);
  const Selection selection(topo::Placement::uniform(2, 6), host_model(transport::FifoOptions{}));
  EXPECT_EQ(selection.candidates(Collective::all_reduce, 1024).front().choice.entry->name, "tree");
}

// From a root that does not begin its node a chain over two nodes crosses between them twice.
TEST(Selection, ARowServesRootsInTheMiddleOfTheirNode) {
  const Selection selection(topo::Placement::uniform(2, 3), host_model(transport::FifoOptions{}));
  const auto candidates = selection.candidates(Collective::broadcast, 1024);
  const auto chain = std::ranges::find_if(
      candidates, [](const Candidate& one) { return one.choice.entry->name == "ring"; });
  ASSERT_NE(chain, candidates.end());
  EXPECT_EQ(chain->cost.steps_inter_node, 2);
  EXPECT_EQ(chain->cost.bytes_filling_inter_node, 512);
  EXPECT_EQ(candidates.front().choice.entry->name, "binomial");
}

// What is passed on in the step that takes it need not be read again.
TEST(Selection, LargeCallsOfManyRanksGoRoundARing) {
  Selection selection = selection_of(1, 16);
  for (Collective collective :
       {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce})
    EXPECT_EQ(selection.candidates(collective, 16 << 20).front().choice.entry->name, "ring")
        << name(collective);
}

// Down a chain each rank sends a message once, where the root of a binomial tree of 16 sends it
// four times. A tree's four steps are fewer than a chain's fifteen.
TEST(Selection, ABroadcastOfManyRanksGoesDownATreeThenAChain) {
  const Selection selection = selection_of(1, 16);
  for (Collective collective : {Collective::broadcast, Collective::reduce}) {
    const auto chosen = [&](std::uint64_t bytes) {
      return selection.candidates(collective, bytes).front().choice.entry->name;
    };
    EXPECT_EQ(chosen(512), "binomial") << name(collective);
    EXPECT_EQ(chosen(32 << 10), "ring") << name(collective);
  }
}

// What GPUs win by: on a host each rank would wait for every other.
TEST(Selection, OnAHostNoRootHasItsBlockExchanged) {
  for (int ranks : {3, 4, 16}) {
    Selection selection = selection_of(1, ranks);
    for (Collective collective : {Collective::broadcast, Collective::reduce})
      for (std::uint64_t bytes = 8; bytes <= (std::uint64_t{1} << 26); bytes *= 8)
        EXPECT_NE(selection.candidates(collective, bytes).front().choice.entry->name, "two_shot")
            << name(collective) << ", " << ranks << " ranks, " << bytes << " bytes";
  }
}

constexpr int blocks_of_h200 = 132;

Selection device_selection(int ranks, int thread_blocks = blocks_of_h200,
                           bool copies_in_bulk = true) {
  return Selection(topo::Placement::single_node(ranks),
                   device_model({}, thread_blocks, copies_in_bulk));
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
      const bool goes_straight = collective == Collective::all_gather ||
                                 collective == Collective::all_to_all ||
                                 (collective == Collective::reduce_scatter && ranks == 2);
      EXPECT_EQ(large.choice.protocol, goes_straight ? Protocol::ll128 : Protocol::simple);
      EXPECT_EQ(large.choice.channels > 1, !goes_straight);
      EXPECT_LT(small.time_us, large.time_us);
    }
  }
}

// As measured on 4 H200: bench/results/gpu_reduce_2026-11-22.txt.
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
  Selection selection = device_selection(2, blocks_of_h200, /*copies_in_bulk=*/false);
  const auto best = [&](std::uint64_t bytes) {
    const Choice choice = selection.candidates(Collective::reduce, bytes).front().choice;
    return str(choice.entry->name, " ", name(choice.protocol), " ", choice.channels);
  };
  for (const std::uint64_t bytes : {1 << 20, 4 << 20, 16 << 20})
    EXPECT_EQ(best(bytes), "knomial4 ll128 1") << bytes;
  for (const std::uint64_t bytes : {64 << 20, 256 << 20, 1 << 30})
    EXPECT_EQ(best(bytes), "ring simple 64") << bytes;
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
          const auto choice = selection.choose(collective, bytes, 0, false, {.max_sms = max_sms});
          ASSERT_TRUE(choice.ok()) << choice.error().describe();
          const auto request = selection.request(collective, *choice, 0, false);
          const double block =
              collective == Collective::all_gather || collective == Collective::all_to_all
                  ? static_cast<double>(bytes) / ranks
                  : static_cast<double>(bytes);
          EXPECT_LE(
              device_model({}, blocks_of_h200, true)->thread_blocks(*choice->entry, request, block),
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
            selection.choose(collective, std::uint64_t{1} << 28, 0, false, {.max_sms = max_sms});
        ASSERT_TRUE(choice.ok()) << choice.error().describe();
        EXPECT_EQ(choice->entry->name, algorithm);
        EXPECT_EQ(choice->protocol, Protocol::ll128);
        EXPECT_EQ(choice->channels, 1);
      }
}

TEST(Selection, OnADeviceLargeCallsThatLeaveRoomGoByBulkCopies) {
  for (const int ranks : {2, 3, 4, 8})
    for (const bool copies_in_bulk : {true, false})
      for (const auto& [collective, algorithm] : {std::pair{Collective::all_reduce, "two_shot"},
                                                  {Collective::all_gather, "direct"},
                                                  {Collective::reduce_scatter, "direct"}})
        for (std::uint64_t bytes = 24; bytes <= 4096; bytes *= 4) {
          SCOPED_TRACE(testing::Message() << name(collective) << ", " << ranks << " ranks, "
                                          << bytes << " MiB, in bulk " << copies_in_bulk);
          Selection selection = device_selection(ranks, blocks_of_h200, copies_in_bulk);
          const auto usual = selection.choose(collective, bytes << 20, 0, false, {});
          const auto choice =
              selection.choose(collective, bytes << 20, 0, false, {.leaves_room = true});
          ASSERT_TRUE(choice.ok()) << choice.error().describe();
          if (!copies_in_bulk) {
            EXPECT_EQ(*choice, *usual);
            continue;
          }
          EXPECT_EQ(choice->entry->name, algorithm);
          EXPECT_EQ(choice->protocol, Protocol::ll128);
          EXPECT_EQ(choice->channels, 1);
        }
}

// Where devices copy in bulk; a ring of tiles elsewhere.
TEST(Selection, OnADeviceLargeCallsFromAndToARootGoByBulkCopies) {
  for (const auto& [collective, ranks, algorithm] :
       {std::tuple{Collective::broadcast, 2, "two_shot"},
        {Collective::broadcast, 4, "two_shot"},
        {Collective::reduce, 2, "knomial4"}})
    for (const bool copies_in_bulk : {true, false})
      for (const std::uint64_t bytes : {256ULL << 20, 1ULL << 30}) {
        SCOPED_TRACE(testing::Message() << name(collective) << ", " << ranks << " ranks, " << bytes
                                        << " bytes, in bulk " << copies_in_bulk);
        Selection selection = device_selection(ranks, blocks_of_h200, copies_in_bulk);
        const Choice choice = selection.candidates(collective, bytes).front().choice;
        EXPECT_EQ(choice.entry->name, copies_in_bulk ? algorithm : "ring");
        EXPECT_EQ(choice.protocol, copies_in_bulk ? Protocol::ll128 : Protocol::simple);
      }
}

TEST(Selection, AnAlgorithmThatTakesMoreThanItMayIsRefused) {
  Selection selection = device_selection(4);
  CallOptions options{.algorithm = "two_shot", .channels = 16, .max_sms = 4};
  const auto refused = selection.choose(Collective::all_reduce, 1 << 24, 0, false, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("max_sms is 4"), std::string::npos)
      << refused.error().message;
}

TEST(Selection, TheCopyEnginesServeWhatCombinesNothing) {
  for (int ranks : {1, 2, 3, 8}) {
    Selection selection(topo::Placement::single_node(ranks), copy_model({}));
    for (int i = 0; i <= static_cast<int>(Collective::barrier); ++i) {
      const auto collective = static_cast<Collective>(i);
      const auto choice = selection.choose(collective, 1 << 20, 0, false, {});
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
      const auto choice = selection.choose(collective, 64 << 20, 0, false, {});
      ASSERT_TRUE(choice.ok()) << choice.error().message;
      EXPECT_GT(engine::gpu::straight_copy_hops(collective, choice->entry->name, ranks), 0)
          << name(collective) << " of " << ranks << " ranks: " << choice->entry->name;
    }
  }
}

TEST(Selection, OnADeviceARankAloneIsServedToo) {
  Selection selection = device_selection(1);
  for (int i = 0; i <= static_cast<int>(Collective::barrier); ++i)
    EXPECT_TRUE(selection.choose(static_cast<Collective>(i), 8, 0, false, {}).ok())
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

TEST(Selection, AFilesRowsAreForTheEngineThatTheyName) {
  const auto path = std::filesystem::temp_directory_path() / "unisono-selection-engine.json";
  std::ofstream(path) << R"({"rows": [{"engine": "gpu", "collective": "all_reduce",
      "algorithm": "ring", "protocol": "ll128"}]})";
  const WithSetting file(Setting::selection_file, path.string());
  Selection host = selection_of(1, 4);
  Selection device = device_selection(4);
  ASSERT_TRUE(host.read_settings().ok());
  ASSERT_TRUE(device.read_settings().ok());
  EXPECT_EQ(device.choose(Collective::all_reduce, 8, 0, false, {})->entry->name, "ring");
  EXPECT_NE(host.choose(Collective::all_reduce, 8, 0, false, {})->protocol, Protocol::ll128);
  std::filesystem::remove(path);
}

TEST(Selection, AFilesRowsAreForTheRanksAndNodesThatTheyName) {
  const auto path = std::filesystem::temp_directory_path() / "unisono-selection-shape.json";
  std::ofstream(path) << R"({"rows": [{"collective": "broadcast", "algorithm": "ring",
      "protocol": "ll128", "ranks": 4, "nodes": 1, "max_bytes": 100},
      {"collective": "broadcast", "algorithm": "binomial", "protocol": "ll128", "ranks": 8}]})";
  const WithSetting file(Setting::selection_file, path.string());
  const auto chosen = [](int nodes, int ranks_of_node, std::uint64_t bytes) {
    Selection selection = selection_of(nodes, ranks_of_node);
    EXPECT_TRUE(selection.read_settings().ok());
    const Choice choice = selection.choose(Collective::broadcast, bytes, 0, false, {}).value();
    return str(choice.name(), " ", name(choice.protocol));
  };
  EXPECT_EQ(chosen(1, 4, 100), "ring ll128");
  EXPECT_NE(chosen(1, 4, 101), "ring ll128");
  EXPECT_NE(chosen(2, 2, 100), "ring ll128");
  EXPECT_EQ(chosen(2, 4, 100), "binomial ll128");
  EXPECT_EQ(chosen(1, 8, 100), "binomial ll128");
  std::filesystem::remove(path);
}

TEST(Selection, ChoosesTheCheapestCandidate) {
  Selection selection = selection_of(2, 4);
  for (std::uint64_t bytes : {8ULL, 4096ULL, 1ULL << 20, 1ULL << 26}) {
    const auto candidates = selection.candidates(Collective::all_gather, bytes);
    ASSERT_FALSE(candidates.empty());
    auto choice = selection.choose(Collective::all_gather, bytes, 0, false, {});
    ASSERT_TRUE(choice.ok());
    EXPECT_EQ(choice->entry, candidates.front().choice.entry);
    for (std::size_t i = 1; i < candidates.size(); ++i)
      EXPECT_LE(candidates[i - 1].time_us, candidates[i].time_us);
  }
}

TEST(Selection, ACallsOwnOptionsWin) {
  Selection selection = selection_of(1, 4);
  CallOptions options;
  options.algorithm = "ring";
  options.protocol = Protocol::ll128;
  options.channels = 2;
  auto choice = selection.choose(Collective::all_reduce, 8, 0, false, options);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->entry->name, "ring");
  EXPECT_EQ(choice->protocol, Protocol::ll128);
  EXPECT_EQ(choice->channels, 2);
}

TEST(Selection, UnknownNamesAreToldWithNearOnes) {
  Selection selection = selection_of(1, 4);
  CallOptions options;
  options.algorithm = "rabenseifer";
  const auto choice = selection.choose(Collective::all_reduce, 8, 0, false, options);
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.error().kind, ErrorKind::misuse);
  EXPECT_NE(choice.error().message.find("rabenseifner"), std::string::npos)
      << choice.error().message;
}

TEST(Selection, SettingsForceAlgorithmsWhereTheyExist) {
  const WithSetting algorithm(Setting::algorithm, "ring,all_gather:bruck");
  const WithSetting protocol(Setting::protocol, "simple");
  Selection selection = selection_of(2, 3);
  ASSERT_TRUE(selection.read_settings().ok());
  const auto chosen = [&](Collective collective) {
    auto choice = selection.choose(collective, 64, 0, false, {});
    EXPECT_TRUE(choice.ok());
    EXPECT_EQ(choice->protocol, Protocol::simple);
    return choice->entry->name;
  };
  EXPECT_EQ(chosen(Collective::all_reduce), "ring");
  EXPECT_EQ(chosen(Collective::all_gather), "bruck");
  EXPECT_NE(chosen(Collective::all_to_all), "ring");  // there is none: the table chooses
}

TEST(Selection, AWrongSettingIsTold) {
  for (const char* wrong : {"all_reduce:nonsense", "nothing:ring"}) {
    const WithSetting algorithm(Setting::algorithm, wrong);
    Selection selection = selection_of(1, 2);
    const Status status = selection.read_settings();
    ASSERT_FALSE(status.ok()) << wrong;
    EXPECT_NE(status.error().message.find("UNISONO_ALGORITHM"), std::string::npos);
  }
}

class SelectionFile : public testing::Test {
 protected:
  Status read(const std::string& text) {
    std::ofstream(path_) << text;
    const WithSetting file(Setting::selection_file, path_);
    return selection_.read_settings();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Selection selection_ = selection_of(1, 4);
  std::string path_ = testing::TempDir() + "unisono-selection.json";
};

TEST_F(SelectionFile, GoesBeforeTheModel) {
  ASSERT_TRUE(read(R"({"rows": [{"collective": "all_reduce", "algorithm": "tree",
      "protocol": "ll", "channels": 1, "min_bytes": 100, "max_bytes": 200}]})")
                  .ok());
  auto inside = selection_.choose(Collective::all_reduce, 150, 0, false, {});
  ASSERT_TRUE(inside.ok());
  EXPECT_EQ(inside->entry->name, "tree");
  EXPECT_EQ(selection_.rows(Collective::all_reduce).front().origin, path_);
  auto outside = selection_.choose(Collective::all_reduce, 1 << 20, 0, false, {});
  ASSERT_TRUE(outside.ok());
  EXPECT_NE(outside->entry->name, "tree");
}

TEST_F(SelectionFile, ThatIsWrongSaysWhere) {
  for (const char* text :
       {"{", "{}", R"({"rows": [3]})", R"({"rows": [{"collective": "all_reduce"}]})",
        R"({"rows": [{"collective": "x", "algorithm": "ring", "protocol": "ll"}]})",
        R"({"rows": [{"collective": "all_reduce", "algorithm": "ring", "protocol": "x"}]})",
        R"({"rows": [{"collective": "all_reduce", "algorithm": "rin", "protocol": "ll"}]})",
        R"({"rows": [{"collective": "all_reduce", "algorithm": "ring", "protocol": "ll",
                      "channels": 0}]})"}) {
    const Status status = read(text);
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_NE(status.error().message.find(path_), std::string::npos) << status.error().message;
  }
}

}  // namespace
}  // namespace unisono::comm
