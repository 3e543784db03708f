#include "comm/select/selection.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/str.h"
#include "support/settings.h"

namespace unisono::comm {
namespace {

Selection selection_of(int nodes, int ranks_per_node) {
  return Selection(topo::Placement::uniform(nodes, ranks_per_node),
                   host_model(transport::FifoOptions{}));
}

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
  const auto steps_of = [](Collective collective, double oversubscription) {
    const Selection selection(
        topo::Placement::single_node(4),
        host_model(transport::FifoOptions{}, {.oversubscription = oversubscription}));
    return selection.candidates(collective, 16).front().cost.steps;
  };
  for (Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::broadcast}) {
    EXPECT_EQ(steps_of(collective, 2), 1) << name(collective);
    EXPECT_EQ(steps_of(collective, 1), 2) << name(collective);
  }
}

// Where the kernel copies faster than slots do, large messages cost less; short ones stay in slots.
TEST(Selection, SingleCopiesMakeLargeMessagesCheaper) {
  const transport::FifoOptions single{.zero_copy = true, .zero_copy_min_bytes = 256 << 10};
  const auto time_us = [](const transport::FifoOptions& options, double gain, Protocol protocol,
                          std::uint64_t bytes) {
    const Selection selection(topo::Placement::single_node(4),
                              host_model(options, {.single_copy_gain = gain}));
    const auto candidates = selection.candidates(Collective::all_gather, bytes);
    const auto ring = std::ranges::find_if(candidates, [&](const Candidate& one) {
      return one.choice.entry->name == "ring" && one.choice.protocol == protocol;
    });
    return ring == candidates.end() ? 0 : ring->time_us;
  };
  const std::uint64_t large = 4 << 20, small = 512 << 10;
  const double by_slots = time_us({}, 1, Protocol::simple, large);
  EXPECT_GT(by_slots, 0);
  EXPECT_LT(time_us(single, 2, Protocol::simple, large), 0.6 * by_slots);
  EXPECT_DOUBLE_EQ(time_us(single, 1, Protocol::simple, large), by_slots);
  EXPECT_DOUBLE_EQ(time_us(single, 2, Protocol::simple, small),
                   time_us({}, 1, Protocol::simple, small));
  EXPECT_DOUBLE_EQ(time_us(single, 2, Protocol::ll128, large),
                   time_us({}, 1, Protocol::ll128, large));
}

TEST(Selection, ExplanationsTellOfSingleCopies) {
  const auto explained = [](const transport::FifoOptions& options, double gain) {
    Selection selection(topo::Placement::single_node(2),
                        host_model(options, {.single_copy_gain = gain}));
    return selection.explain(Collective::all_gather, 4 << 20)->text();
  };
  EXPECT_EQ(explained({}, 1).find("single copies"), std::string::npos);
  const transport::FifoOptions single{.zero_copy = true, .zero_copy_min_bytes = 256 << 10};
  EXPECT_NE(explained(single, 1.5).find("messages of 256 KiB and more"), std::string::npos);
  EXPECT_NE(explained(single, 1.5).find("measured 1.5 times as fast as slots"), std::string::npos);
  EXPECT_EQ(explained(single, 1).find("times as fast"), std::string::npos);
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

TEST(Selection, AFilesRowsAreForTheEngineThatTheyName) {
  const auto path = std::filesystem::temp_directory_path() / "unisono-selection-engine.json";
  std::ofstream(path) << R"({"rows": [{"engine": "gpu", "collective": "all_reduce",
      "algorithm": "ring", "protocol": "ll128"}]})";
  const Settings settings = test::settings_with({{Setting::selection_file, path.string()}});
  Selection host = selection_of(1, 4);
  Selection device(topo::Placement::single_node(4), device_model({}, 132, {}));
  ASSERT_TRUE(host.read_settings(settings).ok());
  ASSERT_TRUE(device.read_settings(settings).ok());
  EXPECT_EQ(device.choose(Collective::all_reduce, 8, 0, {})->entry->name, "ring");
  EXPECT_NE(host.choose(Collective::all_reduce, 8, 0, {})->protocol, Protocol::ll128);
  std::filesystem::remove(path);
}

TEST(Selection, AFilesRowsAreForTheRanksAndNodesThatTheyName) {
  const auto path = std::filesystem::temp_directory_path() / "unisono-selection-shape.json";
  std::ofstream(path) << R"({"rows": [{"collective": "broadcast", "algorithm": "ring",
      "protocol": "ll128", "ranks": 4, "nodes": 1, "max_bytes": 100},
      {"collective": "broadcast", "algorithm": "binomial", "protocol": "ll128", "ranks": 8}]})";
  const Settings settings = test::settings_with({{Setting::selection_file, path.string()}});
  const auto chosen = [&](int nodes, int ranks_of_node, std::uint64_t bytes) {
    Selection selection = selection_of(nodes, ranks_of_node);
    EXPECT_TRUE(selection.read_settings(settings).ok());
    const Choice choice = selection.choose(Collective::broadcast, bytes, 0, {}).value();
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
    auto choice = selection.choose(Collective::all_gather, bytes, 0, {});
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
  auto choice = selection.choose(Collective::all_reduce, 8, 0, options);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->entry->name, "ring");
  EXPECT_EQ(choice->protocol, Protocol::ll128);
  EXPECT_EQ(choice->channels, 2);
}

TEST(Selection, UnknownNamesAreToldWithNearOnes) {
  Selection selection = selection_of(1, 4);
  CallOptions options;
  options.algorithm = "rabenseifer";
  const auto choice = selection.choose(Collective::all_reduce, 8, 0, options);
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.error().kind, ErrorKind::misuse);
  EXPECT_NE(choice.error().message.find("rabenseifner"), std::string::npos)
      << choice.error().message;
}

TEST(Selection, SettingsForceAlgorithmsWhereTheyExist) {
  const Settings settings = test::settings_with(
      {{Setting::algorithm, "ring,all_gather:bruck"}, {Setting::protocol, "simple"}});
  Selection selection = selection_of(2, 3);
  ASSERT_TRUE(selection.read_settings(settings).ok());
  const auto chosen = [&](Collective collective) {
    auto choice = selection.choose(collective, 64, 0, {});
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
    const Settings settings = test::settings_with({{Setting::algorithm, wrong}});
    Selection selection = selection_of(1, 2);
    const Status status = selection.read_settings(settings);
    ASSERT_FALSE(status.ok()) << wrong;
    EXPECT_NE(status.error().message.find("UNISONO_ALGORITHM"), std::string::npos);
  }
}

class SelectionFile : public testing::Test {
 protected:
  Status read(const std::string& text) {
    std::ofstream(path_) << text;
    return selection_.read_settings(test::settings_with({{Setting::selection_file, path_}}));
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Selection selection_ = selection_of(1, 4);
  std::string path_ = testing::TempDir() + "unisono-selection.json";
};

TEST_F(SelectionFile, GoesBeforeTheModel) {
  ASSERT_TRUE(read(R"({"rows": [{"collective": "all_reduce", "algorithm": "tree",
      "protocol": "ll", "channels": 1, "min_bytes": 100, "max_bytes": 200}]})")
                  .ok());
  auto inside = selection_.choose(Collective::all_reduce, 150, 0, {});
  ASSERT_TRUE(inside.ok());
  EXPECT_EQ(inside->entry->name, "tree");
  EXPECT_EQ(selection_.rows(Collective::all_reduce).front().origin, path_);
  auto outside = selection_.choose(Collective::all_reduce, 1 << 20, 0, {});
  ASSERT_TRUE(outside.ok());
  EXPECT_NE(outside->entry->name, "tree");
}

TEST_F(SelectionFile, SaysWhyARowIsThereAndThatNoneIsForThisShape) {
  ASSERT_TRUE(read(R"({"rows": [{"collective": "all_reduce", "algorithm": "tree", "protocol": "ll",
      "ranks": 4, "why": "dgx_h100, 1 KiB: 12 us simulated"},
      {"collective": "all_reduce", "algorithm": "ring", "protocol": "ll", "ranks": 8}]})")
                  .ok());
  EXPECT_EQ(selection_.file_note(), "");
  const auto here = selection_.explain(Collective::all_reduce, 1024);
  ASSERT_TRUE(here.ok());
  EXPECT_EQ(here->algorithm, "tree");
  EXPECT_EQ(here->origin, path_ + ": dgx_h100, 1 KiB: 12 us simulated");

  Selection other = selection_of(2, 3);
  const Settings settings = test::settings_with({{Setting::selection_file, path_}});
  ASSERT_TRUE(other.read_settings(settings).ok());
  EXPECT_EQ(other.file_note(),
            path_ +
                " has no row for 6 ranks on 2 nodes, so the cost model chooses; its rows are "
                "for 4 ranks on any number of nodes, 8 ranks on any number of nodes");
  const auto there = other.explain(Collective::all_reduce, 1024);
  ASSERT_TRUE(there.ok());
  EXPECT_NE(there->note.find("has no row for 6 ranks"), std::string::npos);
}

TEST_F(SelectionFile, ThatIsWrongSaysWhere) {
  for (
      const char* text :
      {"{", "{}", R"({"rows": [3]})", R"({"rows": [{"collective": "all_reduce"}]})",
       R"({"rows": [{"collective": "x", "algorithm": "ring", "protocol": "ll"}]})",
       R"({"rows": [{"collective": "all_reduce", "algorithm": "ring", "protocol": "x"}]})",
       R"({"rows": [{"collective": "all_reduce", "algorithm": "rin", "protocol": "ll"}]})",
       R"({"rows": [{"collective": "all_reduce", "algorithm": "ring", "protocol": "ll", "why": 1}]})",
       R"({"rows": [{"collective": "all_reduce", "algorithm": "ring", "protocol": "ll",
                      "channels": 0}]})"}) {
    const Status status = read(text);
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_NE(status.error().message.find(path_), std::string::npos) << status.error().message;
  }
}

}  // namespace
}  // namespace unisono::comm
