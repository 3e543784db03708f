#include "topo/levels.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/str.h"
#include "topo/placement.h"

namespace unisono::topo {
namespace {

std::string error_of(std::string_view text) {
  const auto location = parse_location(text);
  if (location.ok()) return "no error";
  EXPECT_EQ(location.error().kind, ErrorKind::misuse);
  return location.error().message;
}

TEST(Location, IsReadAndWritten) {
  const auto location = parse_location("rack=r12+12us,zone=z3+1.5ms,building=b-1.x:/_+1.5ms");
  ASSERT_TRUE(location.ok()) << location.error().message;
  ASSERT_EQ(location->size(), 3U);
  EXPECT_EQ(location->front(), (LevelUnit{"rack", "r12", 12'000}));
  EXPECT_EQ(parse_location(to_text(*location)).value(), *location);
  EXPECT_EQ(levels_text(parse_location("rack=r12+12us,zone=z3+28us").value()),
            "rack+12 us,zone+28 us");
  EXPECT_EQ(parse_location("rack=r1,zone=z1").value().back().leaving_ns, 0);
  EXPECT_TRUE(parse_location("").value().empty());
}

TEST(Location, ErrorsQuoteTheValueAndSayWhatIsRight) {
  EXPECT_EQ(error_of("rack"),
            "'rack' is not LEVEL=UNIT; write rack=r12,zone=z3 or rack=r12+12us,zone=z3+28us");
  EXPECT_EQ(error_of("rack=a,"),
            "'' is not LEVEL=UNIT; write rack=r12,zone=z3 or rack=r12+12us,zone=z3+28us");
  EXPECT_EQ(error_of("=a"),
            "the level '' has 0 bytes; it needs 1 to 63 letters, digits or any of _-.:/");
  EXPECT_EQ(error_of("rack=a b"),
            "the unit of level 'rack' 'a b' has 3 bytes; it needs 1 to 63 letters, digits or any "
            "of _-.:/");
  EXPECT_EQ(error_of("rack=a,rack=b"), "level 'rack' is named twice; name each level once");
  EXPECT_EQ(error_of("rack=a+5us,zone=b"),
            "a message that leaves level 'zone' takes 0 ns longer, but one that leaves 'rack' 5 "
            "us; name the nearest level first, with the shortest time");
  EXPECT_NE(error_of("rack=a+soon").find("the time of level 'rack': "), std::string::npos);
  EXPECT_NE(error_of("rack=a+-3us").find("the time of level 'rack': "), std::string::npos);
  EXPECT_EQ(error_of("a=1,b=1,c=1,d=1,e=1,f=1,g=1"),
            "there are more than 6 levels; name at most 6");
  EXPECT_EQ(error_of(std::string(1025, 'x')),
            "the levels have 1025 bytes; at most 1024 are allowed");
}

std::vector<Location> locations(const std::vector<std::string>& texts) {
  std::vector<Location> out;
  for (const std::string& text : texts) out.push_back(parse_location(text).value());
  return out;
}

TEST(Levels, SayHowFarNodesAreApart) {
  // Two racks have one name, in two zones.
  const auto levels =
      Levels::of_nodes(locations({"rack=1+1us,zone=a+3us", "rack=1+1us,zone=b+3us",
                                  "rack=1+1us,zone=a+3us", "rack=2+1us,zone=a+3us"}));
  ASSERT_TRUE(levels.ok()) << levels.error().message;
  EXPECT_EQ(levels->count(), 2);
  EXPECT_EQ(levels->units(0), 3);
  EXPECT_EQ(levels->units(1), 2);
  EXPECT_EQ(levels->left_between(0, 2), 0);
  EXPECT_EQ(levels->left_between(0, 3), 1);
  EXPECT_EQ(levels->left_between(0, 1), 2);
  EXPECT_EQ(levels->most_left(), 2);
  EXPECT_DOUBLE_EQ(levels->longer_us(0), 0);
  EXPECT_DOUBLE_EQ(levels->longer_us(1), 1);
  EXPECT_DOUBLE_EQ(levels->longer_us(2), 3);
  EXPECT_EQ(levels->crossing(0), "inside a rack");
  EXPECT_EQ(levels->crossing(2), "between zones");
  EXPECT_EQ(levels->near_order(), (std::vector<int>{0, 2, 3, 1}));
  const std::vector<int> some{1, 3, 2};
  const Levels of_some = levels->of(some);
  EXPECT_EQ(of_some.nodes(), 3);
  EXPECT_EQ(of_some.left_between(0, 1), 2);
  EXPECT_EQ(of_some.left_between(1, 2), 1);
}

TEST(Levels, AreTheSameAtAllNodes) {
  const auto unlike = Levels::of_nodes(locations({"rack=1", "rack=1,zone=2"}));
  ASSERT_FALSE(unlike.ok());
  EXPECT_EQ(unlike.error().message,
            "the levels of node 0 are rack and those of node 1 are rack,zone; they must be the "
            "same at all nodes");
  EXPECT_TRUE(Levels::of_nodes(locations({"", ""})).value().empty());
  EXPECT_EQ(Levels().nodes(), 0);
  EXPECT_EQ(Levels().most_left(), 0);
}

TEST(Levels, SpansAreConsecutiveNodesThatNest) {
  const auto levels =
      Levels::of_spans(7, std::vector<Levels::Span>{{"rack", 2, 10}, {"zone", 4, 20}});
  ASSERT_TRUE(levels.ok());
  EXPECT_EQ(levels->units(0), 4);
  EXPECT_EQ(levels->units(1), 2);
  EXPECT_EQ(levels->left_between(0, 1), 0);
  EXPECT_EQ(levels->left_between(1, 2), 1);
  EXPECT_EQ(levels->left_between(3, 4), 2);
  EXPECT_EQ(Levels::of_spans(8, std::vector<Levels::Span>{{"rack", 2, 0}, {"zone", 3, 0}})
                .error()
                .message,
            "a unit of level 'zone' has 3 nodes; it must be a multiple of 2, the nodes in a unit "
            "of the level below");
  EXPECT_FALSE(Levels::of_spans(8, std::vector<Levels::Span>{{"rack", 0, 0}}).ok());
  EXPECT_FALSE(Levels::of_spans(8, std::vector<Levels::Span>{{"a b", 2, 0}}).ok());
}

// Nodes of two racks take turns: numbered anew, a ring of nodes leaves each rack once.
TEST(Placement, NumbersNodesOfAUnitOneAfterAnother) {
  const auto levels = Levels::of_nodes(locations({"rack=a", "rack=b", "rack=a", "rack=b"}));
  const std::vector<int> node_of_rank{0, 0, 1, 1, 2, 2, 3, 3};
  const auto placement = Placement::near(node_of_rank, *levels);
  ASSERT_TRUE(placement.ok()) << placement.error().message;
  EXPECT_EQ(placement->node_of(2), 2);
  EXPECT_EQ(placement->node_of(4), 1);
  EXPECT_EQ(placement->levels_left(0, 4), 0);
  EXPECT_EQ(placement->levels_left(0, 2), 1);
  int left = 0;
  for (int node = 0; node < 4; ++node)
    left += placement->levels().left_between(node, (node + 1) % 4);
  EXPECT_EQ(left, 2);
  EXPECT_EQ(placement->one_rank_per_node().levels_left(1, 2), 1);
  EXPECT_FALSE(Placement::near(std::vector<int>{0, 4}, *levels).ok());
  EXPECT_EQ(Placement::uniform(3, 1).with(*levels).error().message,
            "the levels are those of 4 nodes, and the ranks are on 3; they must be of the same "
            "nodes");
}

}  // namespace
}  // namespace unisono::topo
