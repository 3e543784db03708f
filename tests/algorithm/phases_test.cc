// Plans in phases are proved: cut, and put together again so that each phase waits for the one
// before.
#include <gtest/gtest.h>

#include <set>

#include "algorithm/algorithm.h"
#include "algorithm/every_entry.h"
#include "algorithm/phases.h"
#include "algorithm/placements.h"
#include "base/str.h"
#include "plan/walk.h"
#include "verify/verify.h"

namespace unisono::algorithm {
namespace {

constexpr int fewest_slots = 2;

bool anything(const plan::Header&, const plan::RankProgram&) { return true; }

// Has every step wait for all of the blocks before `first`: those of phases before.
void wait_for_all(plan::Body& body, const std::vector<std::int64_t>& steps) {
  for (plan::Node& node : body) {
    if (auto* const loop = std::get_if<plan::Loop>(&node)) {
      wait_for_all(loop->body, steps);
      continue;
    }
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (steps[i] > 0) std::get<plan::Step>(node).after.push_back({static_cast<int>(i), steps[i]});
  }
}

void shift_dependencies(plan::Body& body, int by) {
  for (plan::Node& node : body) {
    if (auto* const loop = std::get_if<plan::Loop>(&node)) {
      shift_dependencies(loop->body, by);
      continue;
    }
    for (plan::Dependency& one : std::get<plan::Step>(node).after) one.thread_block += by;
  }
}

plan::RankProgram joined(const plan::Phases& phases) {
  plan::RankProgram out{phases.before.rank, phases.before.scratch_blocks, {}};
  for (const plan::RankProgram* part : {&phases.before, &phases.between, &phases.after}) {
    std::vector<std::int64_t> steps;
    for (const plan::ThreadBlock& block : out.thread_blocks)
      steps.push_back(plan::unrolled_steps(block.body));
    for (plan::ThreadBlock block : part->thread_blocks) {
      shift_dependencies(block.body, static_cast<int>(steps.size()));
      wait_for_all(block.body, steps);
      out.thread_blocks.push_back(std::move(block));
    }
  }
  return out;
}

class Phases : public testing::TestWithParam<const Entry*> {};
INSTANTIATE_TEST_SUITE_P(Every, Phases, testing::ValuesIn(every_entry()), name_of_entry);

TEST_P(Phases, AreProvedAndTheSameOnEveryRank) {
  const Entry& entry = *GetParam();
  for (int ranks = 3; ranks <= (is_sanitized ? 5 : 9); ++ranks)
    for (const NamedPlacement& where : placements_of(ranks))
      for (const Variant& variant : variants_for(ranks)) {
        const Request request{.collective = entry.collective,
                              .placement = where.placement,
                              .root = has_root(entry.collective) ? ranks - 1 : 0,
                              .in_place = variant.in_place,
                              .channels = variant.channels};
        SCOPED_TRACE(str(ranks, " ranks, ", where.name, ", ", request.channels, " channels, ",
                         request.in_place ? "in place" : "out of place"));
        auto made = make_plan(entry, request);
        if (!made.ok()) continue;
        plan::Plan plan = std::move(made).value();
        int cut = 0;
        std::set<int> thread_blocks;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto found = phases_of(entry, request, rank, anything);
          if (!found) continue;
          ++cut;
          thread_blocks.insert(found->thread_blocks);
          const auto is_inside = [&](int peer) {
            return peer < 0 || where.placement.same_node(rank, peer);
          };
          for (const auto* part : {&found->mine.before, &found->mine.after})
            for (const plan::ThreadBlock& block : part->thread_blocks)
              EXPECT_TRUE(is_inside(block.send_peer) && is_inside(block.recv_peer));
          for (const plan::ThreadBlock& block : found->mine.between.thread_blocks)
            EXPECT_FALSE(is_inside(block.send_peer) && is_inside(block.recv_peer));
          plan.programs[static_cast<std::size_t>(rank)] = joined(found->mine);
        }
        ASSERT_TRUE(cut == 0 || cut == ranks) << cut;
        if (cut == 0) continue;
        EXPECT_EQ(thread_blocks.size(), 1U);
        const verify::Report report = verify::verify(plan, {.slots = fewest_slots});
        ASSERT_TRUE(report.ok()) << report.failures.front().describe();
      }
}

// What all ranks of two nodes of two have.
std::set<std::string> cut_on_two_nodes(Collective collective) {
  std::set<std::string> names;
  for (const Entry* entry : entries_for(collective))
    if (phases_of(*entry, {.collective = collective, .placement = topo::Placement::uniform(2, 2)},
                  0, anything))
      names.emplace(entry->name);
  return names;
}

TEST(Phases, HierarchicalPlansHaveThem) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    const auto names = cut_on_two_nodes(collective);
    for (const char* wanted : {"hierarchical_ring", "hierarchical_ring_direct",
                               "hierarchical_recursive", "hierarchical_recursive_direct"})
      EXPECT_TRUE(names.contains(wanted)) << name(collective) << " by " << wanted;
    EXPECT_FALSE(names.contains("ring")) << name(collective);
  }
  EXPECT_TRUE(cut_on_two_nodes(Collective::broadcast).contains("two_shot"));
  EXPECT_TRUE(cut_on_two_nodes(Collective::reduce).contains("knomial4"));
  EXPECT_TRUE(cut_on_two_nodes(Collective::gather).contains("binomial"));
  EXPECT_TRUE(cut_on_two_nodes(Collective::scatter).contains("binomial"));
  EXPECT_TRUE(cut_on_two_nodes(Collective::all_to_all).contains("direct"));
}

TEST(Phases, AreRefusedOnEveryRankWhereOneRankCannotRunThem) {
  const Entry& entry = **find(Collective::all_reduce, "hierarchical_ring");
  const auto placement = topo::Placement::blocks(std::vector{2, 3}).value();
  for (int rank = 0; rank < 5; ++rank) {
    const Request request{.placement = placement};
    EXPECT_TRUE(phases_of(entry, request, rank, anything));
    EXPECT_FALSE(phases_of(entry, request, rank, [](const auto&, const plan::RankProgram& program) {
      return program.rank != 4;
    }));
  }
}

}  // namespace
}  // namespace unisono::algorithm
