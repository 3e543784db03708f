// What the registry's entries state of their programs' symmetry holds for the programs.
#include "simulate/symmetry.h"

#include <gtest/gtest.h>

#include <array>

#include "simulate/body_hash.h"
#include "support/sanitized.h"

namespace unisono::simulate {
namespace {

struct Shape {
  int nodes, ranks_per_node;
};
constexpr std::array<Shape, 8> shapes{
    {{4, 2}, {8, 4}, {3, 4}, {16, 1}, {5, 2}, {7, 3}, {16, 8}, {12, 1}}};

ChunkSizes all_differ(std::int64_t per_block) { return {.per_block = per_block, .equal = 0}; }

std::string difference(const Symmetry& symmetry, int rank, const plan::RankProgram& pattern,
                       const plan::RankProgram& own, const ChunkSizes& chunks) {
  if (own.thread_blocks.size() != pattern.thread_blocks.size()) return "other thread blocks";
  const auto carried = [&](int peer) { return peer < 0 ? peer : symmetry.carried(rank, peer); };
  for (std::size_t i = 0; i < own.thread_blocks.size(); ++i) {
    const plan::ThreadBlock& block = own.thread_blocks[i];
    const plan::ThreadBlock& its = pattern.thread_blocks[i];
    const std::string where = " in thread block " + std::to_string(i);
    if (block.channel != its.channel) return "another channel" + where;
    if (block.send_peer != carried(its.send_peer)) return "another receiver" + where;
    if (block.recv_peer != carried(its.recv_peer)) return "another sender" + where;
    if (body_hash(block.body, chunks) != body_hash(its.body, chunks)) return "other steps" + where;
  }
  return "";
}

// The first difference between a program and what its pattern says; empty: there is none.
std::string first_difference(const algorithm::Entry& entry, const algorithm::Request& request,
                             const Symmetry& symmetry) {
  const plan::Header header = entry.header(request);
  const int ranks = request.placement.ranks();
  const bool of_ranks = std::max(header.input_blocks, header.output_blocks) == ranks;
  std::vector<plan::RankProgram> patterns;
  for (int rank = 0; rank < ranks; ++rank) {
    plan::RankProgram own = entry.program(request, rank);
    if (rank < symmetry.patterns()) patterns.push_back(own);
    const std::string found =
        difference(symmetry, rank, patterns[static_cast<std::size_t>(symmetry.pattern_of(rank))],
                   own, of_ranks ? all_differ(header.chunks_per_block) : ChunkSizes{});
    if (!found.empty()) return "rank " + std::to_string(rank) + " has " + found;
  }
  return "";
}

TEST(Symmetry, OfEveryEntryHolds) {
  int held = 0;
  for (const algorithm::Entry& entry : algorithm::entries()) {
    for (const auto& [nodes, ranks_per_node] : shapes) {
      if (unisono::test::is_sanitized && nodes * ranks_per_node > 32) continue;
      for (const int channels : {1, 2, 3, 8}) {
        algorithm::Request request{.collective = entry.collective,
                                   .placement = topo::Placement::uniform(nodes, ranks_per_node),
                                   .channels = channels};
        const Symmetry symmetry = Symmetry::of(entry.symmetry(request), request.placement);
        if (!entry.supports(request).ok() || symmetry.is_trivial()) continue;
        for (const bool in_place : {false, true}) {
          request.in_place = in_place;
          EXPECT_EQ(first_difference(entry, request, symmetry), "")
              << entry.plan_name() << ", " << nodes << " nodes of " << ranks_per_node << ", "
              << channels << " channels";
          ++held;
        }
      }
    }
  }
  EXPECT_GT(held, 1000);
}

// A tree is none of them, whichever is claimed.
TEST(Symmetry, IsToldFromNone) {
  const algorithm::Entry* tree = algorithm::find_plan("tree_all_reduce").value();
  const algorithm::Request request{.placement = topo::Placement::uniform(8, 4)};
  for (const auto kind : {algorithm::Symmetry::rotation, algorithm::Symmetry::exclusive_or})
    EXPECT_NE(first_difference(*tree, request, Symmetry::of(kind, request.placement)), "");
}

TEST(Symmetry, NeedsEqualNodesInOrder) {
  const auto patterns = [](algorithm::Symmetry kind, const topo::Placement& placement) {
    return Symmetry::of(kind, placement).patterns();
  };
  using enum algorithm::Symmetry;
  EXPECT_EQ(patterns(rotation, topo::Placement::uniform(6, 2)), 2);
  EXPECT_EQ(patterns(none, topo::Placement::uniform(6, 2)), 12);
  EXPECT_EQ(patterns(exclusive_or, topo::Placement::uniform(6, 2)), 12);
  EXPECT_EQ(patterns(exclusive_or, topo::Placement::uniform(8, 2)), 2);
  EXPECT_EQ(patterns(rotation, *topo::Placement::blocks(std::array{2, 2, 1})), 5);
  EXPECT_EQ(patterns(rotation, *topo::Placement::from_nodes(std::array{0, 1, 0, 1})), 4);
}

TEST(Symmetry, CarriesForthAndBack) {
  for (const auto kind : {algorithm::Symmetry::rotation, algorithm::Symmetry::exclusive_or}) {
    const Symmetry symmetry = Symmetry::of(kind, topo::Placement::uniform(8, 4));
    for (int rank = 0; rank < 32; ++rank) {
      EXPECT_EQ(symmetry.carried(rank, symmetry.pattern_of(rank)), rank);
      for (int peer = 0; peer < 32; ++peer)
        EXPECT_EQ(symmetry.carried_back(rank, symmetry.carried(rank, peer)), peer);
    }
  }
}

}  // namespace
}  // namespace unisono::simulate
