#include <unisono/explanation.h>

#include <gtest/gtest.h>

#include <sstream>

#include "comm/select/selection.h"

namespace unisono::comm {
namespace {

Selection selection_of(int nodes, int ranks_per_node) {
  return Selection(topo::Placement::uniform(nodes, ranks_per_node),
                   host_model(transport::FifoOptions{}));
}

TEST(Explain, FitsATerminalOf80Columns) {
  for (const int nodes : {1, 16})
    for (int i = 0; i < static_cast<int>(Collective::point_to_point); ++i) {
      Selection selection = selection_of(nodes, 8);
      auto found = selection.explain(static_cast<Collective>(i), (1 << 20) + 12345);
      ASSERT_TRUE(found.ok());
      std::istringstream lines(found->text());
      for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
    }
}

TEST(Explain, OfLevelsFitsATerminalOf80Columns) {
  const std::vector<topo::Levels::Span> spans{{"rack", 2, 12'000}, {"zone", 8, 28'000}};
  Selection selection(
      topo::Placement::uniform(32, 8).with(topo::Levels::of_spans(32, spans).value()).value(),
      host_model(transport::FifoOptions{}));
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather}) {
    auto found = selection.explain(collective, (1 << 20) + 12345);
    ASSERT_TRUE(found.ok());
    std::istringstream lines(found->text());
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  }
}

TEST(Explain, NamesThePlanTheRowAndAllCandidates) {
  Selection selection = selection_of(2, 4);
  auto text = selection.explain(Collective::all_reduce, 1 << 20);
  ASSERT_TRUE(text.ok());
  for (const char* part : {"8 ranks, 2 nodes", "cost model", "ring", "tree", "rabenseifner"})
    EXPECT_NE(text->text().find(part), std::string::npos) << text->text();
}

}  // namespace
}  // namespace unisono::comm
