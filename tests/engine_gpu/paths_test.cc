// Which kernel carries a call: the built-in rows, and rows of files.
#include "engine/gpu/paths.h"

#include <gtest/gtest.h>

#include <sstream>

#include "engine/gpu/execution.h"
#include "engine/gpu/ll128_all_pairs.h"
#include "support/golden.h"

namespace unisono::engine::gpu {
namespace {

constexpr std::uint64_t default_min_bytes = Options().zero_copy_min_bytes;

Paths built_in(bool has_tma = true, std::uint64_t min_bytes = default_min_bytes) {
  return PathTable::built_in().resolve(90, has_tma, min_bytes);
}

std::string text_of(const PathChoice& choice) {
  // A kernel of lines takes what the size needs within the call's SM budget.
  const int blocks = choice.path == Path::tma_bulk ? choice.thread_blocks : 0;
  return std::string(name(choice.path)) + ":" + std::to_string(blocks);
}

// tests/golden/gpu_paths_sm_90.txt was captured from thresholds in code.
TEST(Paths, OfTheBuiltInTableAreThoseOfTheThresholdsThatItReplaced) {
  std::istringstream lines(test::read_golden("gpu_paths_sm_90.txt"));
  const Paths paths = built_in();
  int cases = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    SCOPED_TRACE(line);
    std::istringstream in(line);
    std::string collective, ranks;
    PathCall call{};
    int overlap = 0;
    in >> collective >> call.hops >> ranks >> call.options.max_sms >> overlap;
    call.collective = collective_from_name(collective).value();
    call.options.compute_overlap = overlap == 1;
    std::string before;
    for (std::string change; in >> change; before = change.substr(change.find(':') + 1))
      for (call.ranks = ranks.front() - '0'; call.ranks <= ranks.back() - '0'; ++call.ranks) {
        call.longest = std::stoull(change);
        EXPECT_EQ(text_of(paths.find(call)), change.substr(change.find(':') + 1));
        --call.longest;
        if (!before.empty()) {
          EXPECT_EQ(text_of(paths.find(call)), before);
        }
        ++cases;
      }
    for (call.ranks = ranks.front() - '0'; call.ranks <= ranks.back() - '0'; ++call.ranks) {
      call.longest = UINT64_MAX / 2;
      EXPECT_EQ(text_of(paths.find(call)), before);
    }
  }
  EXPECT_GT(cases, 500);
}

TEST(Paths, WithoutTmaOrWithoutZeroCopyNoRowNeedsThem) {
  const Paths without_tma = built_in(false);
  EXPECT_FALSE(without_tma.rows().empty());
  for (const PathRow& row : without_tma.rows()) EXPECT_NE(row.path, Path::tma_bulk);
  EXPECT_TRUE(built_in(true, Options::no_zero_copy).rows().empty());
}

TEST(Paths, SizesAreInProportionToTheSettingForZeroCopy) {
  const PathCall call{Collective::broadcast, 2, 2, 8 << 20};
  EXPECT_EQ(built_in().find(call).path, Path::ll128_all_pairs);
  EXPECT_EQ(built_in(true, default_min_bytes / 2).find(call).path, Path::tma_bulk);
}

std::string file_of(std::string_view rows) {
  return "{\n  \"paths\": [\n    " + std::string(rows) + "\n  ]\n}\n";
}

TEST(Paths, OfAFileGoBeforeTheBuiltInOnesOnTheirArchitectureAlone) {
  PathTable table = PathTable::built_in();
  const auto status = table.read(
      file_of(R"({"architecture": "sm_90", "variant": "zero_copy", "collectives": ["all_gather"],
                  "min_bytes": 4096, "thread_blocks": 24},
                 {"architecture": "sm_100", "variant": "ll128_all_pairs",
                  "collectives": ["all_gather", "broadcast"]})"),
      "file");
  ASSERT_TRUE(status.ok()) << status.error().describe();
  const PathCall call{Collective::all_gather, 4, 1, 4096};
  const Paths hopper = table.resolve(90, true, default_min_bytes);
  EXPECT_EQ(hopper.find(call).path, Path::zero_copy);
  EXPECT_EQ(hopper.find(call).thread_blocks, 24);
  ASSERT_NE(hopper.find(call).row, nullptr);
  EXPECT_EQ(hopper.find(call).row->origin, "file");
  const PathCall large{Collective::broadcast, 4, 2, 16 << 20};
  EXPECT_EQ(hopper.find(large).path, Path::tma_bulk);
  EXPECT_EQ(table.resolve(100, true, default_min_bytes).find(large).path, Path::ll128_all_pairs);
  EXPECT_EQ(table.newest_architecture(), 100);
  EXPECT_NE(table.hash(), PathTable::built_in().hash());
}

TEST(Paths, ARowMaySetTheSlotsAndChunksOfBulkCopies) {
  PathTable table = PathTable::built_in();
  const auto status = table.read(
      file_of(R"({"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["all_gather"],
                  "thread_blocks": 8, "slots": 5, "chunk_bytes": 2048})"),
      "file");
  ASSERT_TRUE(status.ok()) << status.error().describe();
  constexpr std::int64_t longest = 1 << 20;
  const auto path_of = [&](const Paths& paths, Collective collective, bool adds) {
    const CallOptions on_few{.max_sms = 16};
    return ll128_path(paths.find({collective, 4, 1, longest, on_few}), longest, 4, adds, on_few);
  };
  const Paths paths = table.resolve(90, true, default_min_bytes);
  EXPECT_EQ(path_of(paths, Collective::all_gather, false),
            (trace::ChosenPath{Path::tma_bulk, 8, 5, 2048}));
  // What is not set is what shared memory has room for.
  EXPECT_EQ(path_of(built_in(), Collective::all_gather, false),
            (trace::ChosenPath{Path::tma_bulk, 16, 7, 4096}));
  EXPECT_EQ(path_of(built_in(), Collective::reduce_scatter, true),
            (trace::ChosenPath{Path::tma_bulk, 16, 3, 2048}));
}

// Architectures without rows of their own take those of the newest that is not newer, and a file's
// rows never stand in for those of another architecture.
TEST(Paths, RowsOfAFileForAnotherArchitectureChangeNothing) {
  PathTable table = PathTable::built_in();
  const auto status = table.read(
      file_of(R"({"architecture": "sm_80", "variant": "zero_copy", "collectives": ["all_gather"],
                  "min_bytes": 1})"),
      "file");
  ASSERT_TRUE(status.ok()) << status.error().describe();
  for (const int architecture : {90, 100}) {
    const Paths with_file = table.resolve(architecture, true, default_min_bytes);
    const Paths without = PathTable::built_in().resolve(architecture, true, default_min_bytes);
    ASSERT_EQ(with_file.rows().size(), without.rows().size()) << architecture;
    for (std::size_t i = 0; i < without.rows().size(); ++i)
      EXPECT_EQ(with_file.rows()[i].text(), without.rows()[i].text());
  }
}

TEST(Paths, WhatAFileSaysWrongIsNamedWithItsLine) {
  const std::string start = R"({"architecture": "sm_90", "variant": "ll128_all_pairs", )";
  const std::string tma = R"({"architecture": "sm_90", "variant": "tma_bulk", )";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"architecture": "hopper"})",
       "line 3: paths[0].architecture: 'hopper' is no architecture; write for example sm_90"},
      {R"({"architecture": "sm_90", "variant": "warp"})",
       "line 3: paths[0].variant: 'warp' is no variant that a row can choose; write "
       "ll128_all_pairs, zero_copy or tma_bulk"},
      {start + R"("collectives": ["barrier"]})",
       "line 3: paths[0].collectives: 'barrier' has no kernel that a row can choose; write "
       "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather or scatter"},
      {start + R"("collectives": ["reduce"], "ranks": 9})",
       "line 3: paths[0].ranks: 9 is out of range; it must be 2 to 8"},
      {start + R"("collectives": ["reduce"], "min_bytes": 5, "max_bytes": 4})",
       "line 3: paths[0].max_bytes: 4 is less than min_bytes, 5"},
      {tma + R"("collectives": ["broadcast"]})",
       "line 3: paths[0].thread_blocks: is missing: a row of tma_bulk needs it, or max_sms up to "
       "32, all of which it then uses"},
      {tma + R"("collectives": ["broadcast"], "thread_blocks": 33})",
       "line 3: paths[0].thread_blocks: 33 is out of range for tma_bulk; it must be 1 to 32"},
      {start + R"("collectives": ["reduce"], "slots": 4})",
       "line 3: paths[0].slots: is 4, but a row of ll128_all_pairs cannot set it; only rows of "
       "tma_bulk can"},
      {tma + R"("collectives": ["broadcast"], "thread_blocks": 8, "slots": 13})",
       "line 3: paths[0].slots: 13 is out of range; it must be 1 to 12"},
      {tma + R"("collectives": ["broadcast"], "thread_blocks": 8, "slots": 8})",
       "line 3: paths[0].slots: 8 cannot be: with chunks of 4096 bytes on 2 ranks, copies need 4 "
       "slots or more, and 7 fit the shared memory of a warp"},
      {tma + R"("collectives": ["all_reduce"], "thread_blocks": 8, "slots": 4})",
       "line 3: paths[0].slots: 4 cannot be: with chunks of 4096 bytes on 2 ranks, sums need 1 "
       "slots or more, and 3 fit the shared memory of a warp"},
      {tma + R"("collectives": ["broadcast"], "thread_blocks": 8, "chunk_bytes": 8192})",
       "line 3: paths[0].chunk_bytes: 8192 cannot be: with chunks of 8192 bytes on 2 ranks, copies "
       "need 4 slots or more, and 3 fit the shared memory of a warp"},
      {tma + R"("collectives": ["broadcast"], "thread_blocks": 8, "chunk_bytes": 1000})",
       "line 3: paths[0].chunk_bytes: 1000 is no multiple of 512, what a warp moves"},
      {R"({"architecture": "sm_90", "variant": "zero_copy", "collectives": ["all_reduce"]})",
       "line 3: paths[0].collectives: 'all_reduce' is not carried by zero_copy, which moves blocks "
       "in one hop and adds nothing"},
      {start + R"("collectives": ["reduce"], "max_bytes": 10},)" + "\n" + start +
           R"("collectives": ["reduce", "scatter"], "min_bytes": 10})",
       "line 4: paths[1] overlaps paths[0] of line 3: both serve some call of sm_90; rows must not "
       "have calls in common"},
      {start + R"("collectives": ["reduce"], "colour": 1})",
       "line 3: paths[0].colour: is not known"},
  };
  for (const auto& [rows, message] : cases) {
    const auto read = read_path_rows(file_of(rows), "file");
    ASSERT_FALSE(read.ok()) << rows;
    EXPECT_TRUE(read.error().message.starts_with("file, " + message)) << read.error().message;
  }
}

}  // namespace
}  // namespace unisono::engine::gpu
