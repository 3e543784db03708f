// The tree of ranks, and what it carries: who is where.

#include "comm/control/tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/str.h"
#include "base/wire.h"
#include "comm/control/members.h"
#include "comm/join/roster.h"
#include "topo/levels.h"

namespace unisono::comm {
namespace {

TEST(Tree, HoldsEveryRankOnceBelowItsParent) {
  for (const int fan_out : {1, 2, 3, 20})
    for (const int ranks : {1, 2, 3, 7, 20, 21, 22, 64, 401}) {
      std::set<int> held{0};
      for (int rank = 0; rank < ranks; ++rank) {
        const TreePlace place(rank, ranks, fan_out);
        EXPECT_EQ(place.rank(), rank);
        EXPECT_LE(place.children().size(), static_cast<std::size_t>(fan_out));
        int next = rank + 1;
        for (const RankRange& child : place.children()) {
          EXPECT_EQ(child.first, next);
          next = child.end;
          EXPECT_TRUE(held.insert(child.first).second);
          const TreePlace below(child.first, ranks, fan_out);
          EXPECT_EQ(below.parent(), rank);
          EXPECT_EQ(below.subtree(), child);
          EXPECT_EQ(below.depth(), place.depth() + 1);
          EXPECT_LT(below.height(), place.height());
        }
        EXPECT_EQ(next, place.subtree().end);
      }
      EXPECT_EQ(held.size(), static_cast<std::size_t>(ranks));
    }
}

TEST(Tree, LeadsFromEveryRankToEveryOther) {
  for (const int ranks : {2, 3, 30, 101})
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to) {
        int steps = 0;
        for (int at = from; at != to; ++steps) at = TreePlace(at, ranks, 3).towards(to);
        EXPECT_LE(steps, 2 * TreePlace(0, ranks, 3).height());
      }
}

TEST(Tree, OfAHundredThousandRanksIsLow) {
  EXPECT_EQ(TreePlace(0, 100'000, default_fan_out).height(), 4);
}

Census census_of(const std::vector<SelfDescription>& ranks, const Key& key) {
  Census out(ranks.front(), key);
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) out.append(Census(ranks[rank], key));
  return out;
}

// Whatever the layout, a roster says of every two ranks whether they share a node and a host.
TEST(Roster, KeepsRandomLayouts) {
  std::mt19937 random(5);
  for (int run = 0; run < 200; ++run) {
    const int ranks = run < 4 ? run + 1 : 1 + static_cast<int>(random() % 60);
    const int hosts = 1 + static_cast<int>(random() % 8);
    const auto kind = random() % 3;
    std::vector<SelfDescription> described;
    std::map<std::string, int> on_host;
    std::map<std::string, std::uint32_t> cores;
    for (int rank = 0; rank < ranks; ++rank) {
      const int host = kind == 0   ? rank * hosts / ranks
                       : kind == 1 ? rank % hosts
                                   : static_cast<int>(random()) % hosts;
      SelfDescription self;
      self.host = str("host", host);
      if (run % 2 == 1) self.node = str("node", random() % 3, " of ", self.host);
      self.cores = 1 + static_cast<std::uint32_t>(random() % 2);
      self.least = 100 + static_cast<std::uint32_t>(rank * 7 % 50);
      self.cache_kib = 200 + static_cast<std::uint32_t>(rank * 11 % 60);
      ++on_host[self.host];
      cores[self.host] = std::max(cores[self.host], self.cores);
      described.push_back(self);
    }
    const Roster made(census_of(described, Key{}));
    const auto roster = Roster::decode(made.encode(), ranks);
    ASSERT_TRUE(roster.ok()) << roster.error().message;
    EXPECT_EQ(roster->ranks(), ranks);
    EXPECT_EQ(roster->hosts(), static_cast<int>(on_host.size()));
    double fullest = 1;
    int most = 0;
    for (const auto& [host, count] : on_host) {
      fullest = std::max(fullest, static_cast<double>(count) / cores[host]);
      most = std::max(most, count);
    }
    EXPECT_DOUBLE_EQ(roster->oversubscription(), fullest);
    EXPECT_EQ(roster->most_on_a_host(), most);
    std::uint32_t least = UINT32_MAX, cache_kib = UINT32_MAX;
    for (int a = 0; a < ranks; ++a) {
      const SelfDescription& one = described[static_cast<std::size_t>(a)];
      least = std::min(least, one.least);
      cache_kib = std::min(cache_kib, one.cache_kib);
      EXPECT_EQ(roster->ranks_on_host(roster->host_of(a)), on_host[one.host]);
      int on_node = 0;
      for (int b = 0; b < ranks; ++b) {
        const SelfDescription& other = described[static_cast<std::size_t>(b)];
        EXPECT_EQ(roster->host_of(a) == roster->host_of(b), one.host == other.host);
        const bool share_a_node = one.host == other.host && one.node == other.node;
        EXPECT_EQ(roster->node_of(a) == roster->node_of(b), share_a_node);
        on_node += share_a_node;
      }
      EXPECT_EQ(roster->ranks_on_node(roster->node_of(a)), on_node);
    }
    EXPECT_EQ(roster->least(), least);
    EXPECT_EQ(roster->cache_kib(), cache_kib);
  }
}

SelfDescription placed(int host, const std::string& location, bool is_launchers = false) {
  return {.host = str("host", host), .location = location, .location_is_launchers = is_launchers};
}

TEST(Roster, HasTheLocationOfEachNode) {
  std::vector<SelfDescription> ranks;
  for (int rank = 0; rank < 12; ++rank)
    ranks.push_back(placed(rank / 2, str("rack=r", rank / 4, ",zone=z1")));
  Census census = census_of(ranks, Key{});
  const auto received = decode_census(encode(census), 12, false);
  ASSERT_TRUE(received.ok()) << received.error().message;
  EXPECT_EQ(received->runs, census.runs);
  EXPECT_EQ(*census.settle_locations(), "");
  const auto roster = Roster::decode(Roster(census).encode(), 12);
  ASSERT_TRUE(roster.ok());
  const std::vector<Roster::Located> expected{
      {2, "rack=r0,zone=z1"}, {2, "rack=r1,zone=z1"}, {2, "rack=r2,zone=z1"}};
  EXPECT_EQ(roster->located(), expected);
  EXPECT_TRUE(Roster(census_of({placed(0, ""), placed(1, "")}, Key{})).located().empty());
}

std::string error_of(const std::vector<SelfDescription>& ranks) {
  Census census = census_of(ranks, Key{});
  const auto settled = census.settle_locations();
  if (settled.ok()) return "no error";
  EXPECT_EQ(settled.error().kind, ErrorKind::misuse);
  return settled.error().message;
}

TEST(Roster, UnlikeLocationsNameBothRanks) {
  EXPECT_EQ(error_of({placed(0, "rack=a"), placed(1, "rack=b"), placed(2, "rack=b,zone=z")}),
            "UNISONO_LEVELS: the levels are 'rack=a' on rank 0 and 'rack=b,zone=z' on rank 2; all "
            "ranks must name the same levels in the same order with the same times");
  EXPECT_EQ(error_of({placed(0, "rack=a"), placed(1, "")}),
            "UNISONO_LEVELS: the levels are 'rack=a' on rank 0 and none on rank 1; all ranks must "
            "name the same levels in the same order with the same times");
  EXPECT_EQ(error_of({placed(0, "rack=a+1us"), placed(1, "rack=a+2us")}),
            "UNISONO_LEVELS: the levels are 'rack=a+1us' on rank 0 and 'rack=a+2us' on rank 1; all "
            "ranks must name the same levels in the same order with the same times");
  EXPECT_EQ(error_of({placed(0, "rack=a"), placed(1, "rack=b"), placed(0, "rack=b")}),
            "UNISONO_LEVELS: the levels are 'rack=a' on rank 0 and 'rack=b' on rank 2, which are "
            "on one node; ranks of a node must be in the same units");
  // What a hostile rank may send.
  EXPECT_EQ(error_of({placed(0, "rack=a"), placed(1, "rack")}),
            "UNISONO_LEVELS of rank 1: 'rack' is not LEVEL=UNIT; write rack=r12,zone=z3 or "
            "rack=r12+12us,zone=z3+28us");
}

TEST(Roster, UnlikeLocationsOfALauncherAreDropped) {
  Census census = census_of({placed(0, "leaf=a", true), placed(1, "leaf=b,core=c", true)}, Key{});
  const auto dropped = census.settle_locations();
  ASSERT_TRUE(dropped.ok());
  EXPECT_EQ(*dropped,
            "the levels are 'leaf=a' on rank 0 and 'leaf=b,core=c' on rank 1; all ranks must name "
            "the same levels in the same order with the same times");
  EXPECT_TRUE(Roster(census).located().empty());
  EXPECT_EQ(error_of({placed(0, "leaf=a", true), placed(1, "rack=a")}).substr(0, 15),
            "UNISONO_LEVELS:");
}

// Every prefix, and every byte changed: refused, or a roster whose locations are those of its
// nodes.
TEST(Roster, MalformedLocationsAreRefused) {
  const Census census = census_of({placed(0, "rack=a"), placed(1, "rack=b")}, Key{});
  const std::vector<std::byte> good = Roster(census).encode();
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_FALSE(Roster::decode(std::span(good).first(bytes), 2).ok()) << bytes;
  int refused = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad = good;
    bad[i] = std::byte{0xff};
    const auto roster = Roster::decode(bad, 2);
    refused += !roster.ok();
    if (!roster.ok()) continue;
    std::uint32_t nodes = 0;
    for (const Roster::Located& one : roster->located()) nodes += one.nodes;
    EXPECT_EQ(nodes, static_cast<std::uint32_t>(roster->nodes())) << i;
  }
  EXPECT_GT(refused, 0);
  WireWriter too_long;
  too_long.raw(std::span(good).first(good.size() - 14));
  too_long.text(std::string(topo::max_location_bytes + 1, 'a'));
  EXPECT_FALSE(Roster::decode(too_long.bytes(), 2).ok());
}

TEST(Roster, OfRegularLayoutsIsShort) {
  std::vector<SelfDescription> blocks;
  for (int rank = 0; rank < 8000; ++rank) blocks.push_back({.host = str("host", rank / 8)});
  const Roster roster(census_of(blocks, Key{}));
  EXPECT_EQ(roster.blocks(), 1U);
  EXPECT_EQ(roster.node_of(7999), 999);
  std::vector<SelfDescription> cyclic;
  for (int rank = 0; rank < 8000; ++rank) cyclic.push_back({.host = str("host", rank % 1000)});
  EXPECT_LE(Roster(census_of(cyclic, Key{})).blocks(), 9U);
}

TEST(Members, AreSharedAndFound) {
  EXPECT_EQ(Members::all(5), Members::all(5));
  EXPECT_EQ(Members::all(3), Members::of({0, 1, 2}));
  const auto some = Members::of({7, 2, 9});
  EXPECT_EQ(some, Members::of({7, 2, 9}));
  EXPECT_NE(some, Members::of({2, 7, 9}));
  EXPECT_EQ(some->index_of(9), 2);
  EXPECT_EQ(some->index_of(2), 1);
  EXPECT_EQ(some->index_of(3), -1);
  EXPECT_EQ(Members::all(4)->index_of(4), -1);
  EXPECT_EQ(Members::all(4)->index_of(-1), -1);
}

}  // namespace
}  // namespace unisono::comm
